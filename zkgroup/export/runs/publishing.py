"""A decided run's files get their final names. May be repeated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zkgroup.errors import RefusedError
from zkgroup.export.lake.lake import MANIFEST
from zkgroup.export.lake.overlap import first_time, refuse_beside, refuse_returned
from zkgroup.export.model.documents import encode_manifest
from zkgroup.export.model.rundata import Manifest, ManifestFile
from zkgroup.export.runs.last_copies import ENDED_BEFORE, is_there, later_run
from zkgroup.export.runs.under_way import UnderWay
from zkgroup.export.stores.taken import TAKEN_REMEDY
from zkgroup.words import are, counted, listed


def publish(run: UnderWay, manifest: Manifest) -> None:
    """Give the files their final names, and the manifest its own."""
    store, files, passed = run.lake.store, manifest.files, run.surroundings.passed
    _refuse_if_taken(run, manifest)
    if run.pointer.attempt != run.claim.attempt:  # else it was written just now
        refuse_gone(run, manifest)
    for number, _ in enumerate(store.publish(_works(run, files)), 1):
        passed(f"published {number} of {len(files)}")
    store.settle(file.name for file in files)
    passed("published for good")
    store.write(f"{run.folder}/{MANIFEST}", encode_manifest(manifest))
    passed("manifest filed")


def refuse_gone(run: UnderWay, manifest: Manifest) -> None:
    """Raise ``RefusedError`` where files of a run that was left are gone, or are not what it has written. The others
    are published first: so they are nobody's to tidy up, and can be adopted."""
    left: list[ManifestFile] = []
    gone: list[str] = []
    for file in manifest.files:
        if is_there(run, file):
            left.append(file)
        else:
            gone.append(file.name)
    if not gone:
        return
    publish_some(run, left)
    names = f"({listed(gone, most=3)})"
    if run.is_taken_back():
        text = f"{run} is being taken back, and {counted(len(gone), 'file')} of it {are(len(gone))} gone {names}"
        remedy = "--settle withdraw goes on with that"
    else:
        text = f"{run} lacks {counted(len(gone), 'file')} that it has written {names}"
        remedy = "somebody changed the folder: restore it; --settle withdraw ends the run, which is read again then"
    if run.pointer.state == "committed":
        remedy = "somebody changed the folder: restore it; --settle forget --skip-lost gives up what is gone"
    if left:
        text += f"; {len(left)} {are(len(left))} published"
        remedy += "; --settle forget, and then --adopt, enters what is left"
    raise RefusedError(text, remedy if later_run(run) is None else ENDED_BEFORE)


def publish_some(run: UnderWay, files: Sequence[ManifestFile]) -> None:
    """Give these of a run's files their final names: the others cannot have theirs."""
    for _ in run.lake.store.publish(_works(run, files)):
        pass
    run.lake.store.settle(file.name for file in files)


def _works(run: UnderWay, files: Iterable[ManifestFile]) -> list[tuple[str, str, int]]:
    return [(f"{run.folder}/{file.work}", file.name, file.bytes) for file in files]


def _refuse_if_taken(run: UnderWay, manifest: Manifest) -> None:
    """Raise where files that are not this run's hold what it is to publish: nobody who heeds its pointer has put them
    there. What is committed is published beside them, as nobody can export it again."""
    own = {file.name for file in manifest.files}
    try:
        refuse_returned(run.lake, run.plan.partitions, own)
        refuse_beside(run.lake, run.plan, first_time(manifest.parts), own)
    except RefusedError as error:
        if run.pointer.state == "committed":
            run.surroundings.warn(f"{error.message}; they are committed, and published once more")
            return
        raise RefusedError(f"{run} is decided and cannot be published: {error.message}", TAKEN_REMEDY) from None

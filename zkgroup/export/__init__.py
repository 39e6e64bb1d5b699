"""Parquet from a group's messages, through Spark: every message exactly once, whatever dies when.

An export is one *run*: plan → write → decide → publish → commit. Wherever it dies, the same command goes on, on this
machine or on another one that sees the folder.

What there is: in the lake's folder ``OUT/_zkgroup/GROUP/RUN/`` a ``plan.json`` (which ranges, from which versions of
the offset nodes, of which incarnation of each topic), ``ATTEMPT/*.tmp`` (what tasks write; ATTEMPT is new for each
process that works on the run) and in the end ``manifest.json`` (what was written, and how every offset is accounted
for). In ZooKeeper the *pointer*, ``/consumers/G/zkgroup/export``, persistent, which names the run, its folder, the
plan's hash and the attempt, and below it ``lock``, ephemeral, which says that somebody is at work.

The state is the pointer's, and every change of it is one compare-and-set on the pointer's version:

==========  =======================================  ==========================================  ======================
state       on disk                                  pointer                                     what a restart does
==========  =======================================  ==========================================  ======================
(none)      maybe a plan that nothing points to      none, or without data                       removes it, plans anew
planned     plan, files of attempts                  run, plan's hash, attempt                   takes over as a new
                                                                                                 attempt, gives way to
                                                                                                 neighbours, reads the
                                                                                                 same ranges again
decided     plan, files, manifest; some published    the same, and the manifest's hash           publishes and commits,
                                                                                                 reads nothing
committed   the same                                 the same, in one transaction with the         publishes, reads
                                                     offsets                                     nothing
withdrawn   the same; some unpublished again         the same, marked                            goes on taking back
(none)      plan, manifest, published files          gone, in one transaction with the offsets   removes what is left of
                                                                                                 the attempts
==========  =======================================  ==========================================  ======================

- **planned → decided** is the point of no return. It is one transaction: the pointer names the manifest, on condition
  that the pointer is as this attempt wrote it and that no offset node has changed. A process that was paused, cut off
  or declared dead cannot decide any more once another has taken over, and its files can be removed without fear. (The
  manifest alone, as a file, would be no such point: no store has both a fence and a conditional write.)
- **Until then** nothing is visible, and the run can be dropped, unless it was written to the end, and may be decided
  for all that ZooKeeper knows, or has what no log has any more: ``--settle keep`` decides it then (``runs.late``). An
  export that fails in order drops it, one that finds an offset moved or a topic made again drops it and says so. What
  only its plan tells is where it was to begin: that is noted (``lake.begun``) before the plan goes.
- **From then on** it only goes forward. Publishing is repeatable: final names carry start and end, no file is replaced,
  and a final name that is taken is only right if it is this very file.
- **decided → none** is the commit: the offsets, each only from its planned version, and in the last transaction the
  pointer and the lock go. A transaction that was lost on the wire is looked up: it is done when the nodes stand where
  the plan puts them, at the planned version plus one.
- **Somebody moved an offset after the decision**, or the topic was made again: nothing is committed over it, the run
  stays as it is, and says so each time. ``--settle keep`` leaves the files and that offset as they are and ends the
  run, ``--settle withdraw`` takes back the files of whatever is not committed, if the logs still have it. Until these
  are gone, ``keep`` makes decided of withdrawn again.

- **Between groups** there is no lock: what names a folder or a bucket differs from machine to machine. A run that is
  planned looks at the pointers of all groups, before it reads anything (``neighbours``); one that names a plan which
  lies in this very lake, for a partition of this run, is in the way. Of two planned runs, the one whose pointer was
  written first goes on, by ZooKeeper's order, and the other drops itself; decided runs are waited for. A planned run
  whose group nobody holds the lock of is put aside: its pointer gets another attempt, so that whoever worked on it
  cannot decide, and who takes it over looks around anew. Only then are published files looked at. So two groups
  never decide about the same partition of a lake at the same time, and a kill holds nobody up. The same order settles
  which layout a new lake has.
- **Files that appear behind the decision** come from who heeds no pointer (another cluster, a copy): publishing is
  refused, and ``--settle withdraw`` takes back the run's own files alone. What is committed already is published.

- **A joined export** (``membership``) goes planned → committed: it decides about what it holds alone, and moves the
  offsets in the same transaction, on condition that its owner nodes are those that it has marked. What it does not
  hold any more is left out of the manifest. So no member's commit can come between decision and commit.

Each step is also a *point*: ``run_export(passed=…)`` is told of each as it is passed, which is how tests find and hurt
all of them.

The folders are layers; each one's docstring names its modules:

    model ← stores ← {tasks ← spark, lake ← planning} ← runs ← checks
"""

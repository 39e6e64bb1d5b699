"""Parquet files and tables from a group's messages, through Spark: every message exactly once, whatever dies when.

An export is one *run*: plan → write → decide → publish → commit. The destination's log of runs says where exports end;
the group's offsets follow. ZooKeeper has the *pointer* ``/consumers/G/zkgroup/export``, persistent, and below it
``lock``, ephemeral, of the process that works on it. The state is the pointer's; each change of it is one
compare-and-set:

==================  =======================================  ====================================  ===================
pointer             in the destination                       what the next export does             what readers see
==================  =======================================  ====================================  ===================
none                nothing                                  plans                                 nothing
``planned`` RUN     ``runs/G/RUN/*.tmp``                     drops it, which fences its process    nothing
                                                             off, removes its files, plans anew
``decided`` RUN,    the same and ``runs/G/RUN/record.json``  puts the record into the log,         whole files, while
hash of the record                                           publishes, commits; reads nothing     it publishes
none                the record in ``log/G``, files           removes ``runs/G/RUN``                all of it
==================  =======================================  ====================================  ===================

- **planned → decided** is the point of no return: one transaction names the record, on condition that the pointer is as
  this process wrote it and that no offset node has changed. A process that was paused, cut off or declared dead cannot
  decide any more once another one has come.
- **Until then** nothing is visible and nothing is bound: a run that fails, or is killed, is dropped and planned anew.
  Only a table is made before reading, without rows: a decided run must not wait for one that cannot be made.
- **From then on** it only goes forward. First the record goes into the log: from here on ZooKeeper is not needed to
  finish. Then each file gets its final name, over nothing. Then the offsets move, each only from its planned version;
  the last transaction takes the pointer along. An offset that somebody else has moved stays, and is reported: the next
  export sees that group and destination disagree, and asks (``planning.mismatch``).
- **A topic in a destination belongs to one group of one cluster** (``destination.run_log``).
- **Documents are not edited by hand.** One that is missing or changed stops the export with its name; nothing is
  repaired, and nothing is written over it.
- **A joined export** (``run.export_member``) moves the offsets in the transaction that decides, on condition that its
  owner nodes are those that it has marked. So no member's commit can come between decision and commit.

Each step is also a *point*: ``run_export(on_point=…)`` is called at each. Tests find all points so, and kill the
process there.

The folders are layers:

    model ← stores ← {tasks ← spark, destination ← planning} ← run ← checks
"""

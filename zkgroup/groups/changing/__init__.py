"""What every change of a group goes through: guarded, version-checked, in pieces that can be resumed.

``writing`` (``write_offsets``) with ``pieces`` (how much one transaction takes), ``guard`` (is the group alive, and
what makes a transaction fail once it is), ``lost`` (what became of a transaction whose answer was lost); ``backup``
with ``backup_json`` (files to undo a change), ``reports`` (what is told of a change that ended early, in doubt or by
a signal), ``unfinished`` (exports that wait to be finished); ``tree`` (all nodes of groups), ``removing``
(``remove_tree``, ``remove_groups``); ``kafka_writing``, ``kafka_removing`` (offsets in Kafka, which has no
compare-and-set); ``permissions`` (what a plan lacks), ``access`` (whose access lists a copy gets), ``strangers``
(members that could not write our nodes).
"""

"""A member of a consumer group, as a state machine: ``Member.handle(event, now)`` returns actions.

It does no I/O, reads no clock and starts no thread. A driver (``zkgroup.connector.zookeeper_driver`` on real servers)
carries the actions out and reports back with events. The protocol is that of the Scala consumer
(``kafka.consumer.ZookeeperConsumerConnector`` 1.1.1), with these differences: partitions are claimed before their
offsets are read, commits are compare-and-set, nothing is delivered or written past the lease, and a member that cannot
get its share leaves the group.

    phase         waits for                          then
    NEW           Start                              CONNECTING
    CONNECTING    Connected                          REGISTERING
    REGISTERING   our id node is created             CHECKING_BROKERS; another session owns it: WAITING
    WAITING       that node goes, or time            REGISTERING; too long: leaving with an error
    CHECKING_BROKERS  is any broker registered?      PAUSING (nothing is read: NOTIFYING); none: OWNING what is owned
    PAUSING       streams are paused, or time        COMMITTING
    COMMITTING    offsets of the share are written   NOTIFYING
    NOTIFYING     the listener returns               RELEASING
    RELEASING     our owner nodes are deleted        READING; leaving: CLOSED
    READING       members, topics → plan             CLAIMING; our id is gone: REGISTERING; failed: ROLLING_BACK
    CLAIMING      our owner nodes are created        LOADING; in conflict: ROLLING_BACK; plan outdated: RELEASING
    ROLLING_BACK  what was claimed is deleted        BACKING_OFF
    BACKING_OFF   blocking owner nodes go, or time   CHECKING_BROKERS; attempts used up: leaving with an error
    LOADING       offsets are read, resets looked up STARTING; failed: ROLLING_BACK
    STARTING      the listener returns               OWNING (streams are assigned their shares)
    OWNING        a change, a commit, Leave          CHECKING_BROKERS, OWNING, PAUSING
    CLOSED        nothing

``Expired`` → CONNECTING under a new session, everything of the old one forgotten, streams paused; leaving: CLOSED.
``Leave``, or a fatal error: at the end of the step that is under way → PAUSING, or RELEASING where nothing is read
(… → CLOSED); past ``leave_timeout``, or 3 s without a connection, straight to CLOSED.
A lost connection leaves the phase as it is: its step begins again when the connection is back.
A reason to rebalance only sets a flag, which is checked in OWNING and BACKING_OFF: ten reasons cause one rebalance.
``TRANSITIONS`` is this table as data; the tests hold every run of the machine against it.

    member_machine.py     sessions; the way into the group and out of it, and how long leaving may take
    member_context.py     what all parts share: phases, settings, owner nodes, timers, requests
    ownership_release.py  PAUSING … RELEASING: give up a share, keeping what was consumed
    acquisition.py        REGISTERING, WAITING; READING … STARTING: get a share, with its retries
    owned_share.py        OWNING: commit, verify, load partitions that are held back
    commits.py            commits, and the callers that wait for them
"""

from zkgroup.protocol.member.member_context import TRANSITIONS, Counters, MemberSettings, Phase
from zkgroup.protocol.member.member_machine import Member

__all__ = ["TRANSITIONS", "Counters", "Member", "MemberSettings", "Phase"]

"""A member of a consumer group, as a state machine: ``Member.handle(event, now)`` returns actions.

It does no I/O, reads no clock and starts no thread; what drives it (``zkgroup.connector`` on real servers) carries the
actions out and reports back with events. The protocol is the reference's (``kafka.consumer.ZookeeperConsumerConnector``
1.1.1), with these differences: partitions are claimed before their offsets are read, commits are compare-and-set,
nothing is handed out or written past the lease, and a member that cannot get its share leaves the group.

    phase         waits for                          then
    NEW           Start                              CONNECTING
    CONNECTING    Connected                          REGISTERING
    REGISTERING   our id node is created             LOOKING; another session holds it: WAITING
    WAITING       that node goes, or time            REGISTERING; too long: leaving with an error
    LOOKING       is any broker registered?          QUIETING (nothing is read: NOTIFYING); none: OWNING what is owned
    QUIETING      streams stop, or time              COMMITTING
    COMMITTING    offsets of the share are written   NOTIFYING
    NOTIFYING     the listener returns               RELEASING
    RELEASING     our owner nodes are deleted        READING; leaving: UNREGISTERING
    READING       members, topics → plan             CLAIMING; our id is gone: REGISTERING; failed: ROLLING_BACK
    CLAIMING      our owner nodes are created        LOADING; in conflict: ROLLING_BACK; plan outdated: RELEASING
    ROLLING_BACK  what was claimed is deleted        BACKING_OFF
    BACKING_OFF   what was in the way goes, or time  LOOKING; attempts used up: leaving with an error
    LOADING       offsets are read, resets looked up STARTING; failed: ROLLING_BACK
    STARTING      the listener returns               OWNING (streams are granted their shares)
    OWNING        a change, a commit, Leave          LOOKING, OWNING, QUIETING
    UNREGISTERING our id node is deleted             CLOSED
    CLOSED        nothing

``Expired`` → CONNECTING under a new session, everything of the old one forgotten, streams stopped; leaving: CLOSED.
``Leave``, or a fatal error: at the end of the step that is under way → QUIETING, or RELEASING where nothing is read
(… → CLOSED); past ``leave_timeout``, or 3 s without a connection, straight to CLOSED.
A lost connection leaves the phase as it is: its step begins again when the connection is back.
What makes a member rebalance only sets a flag, which is looked at in OWNING and BACKING_OFF, so that ten cause one.
``TRANSITIONS`` is this table as data; the tests hold every run of the machine against it.

    machine.py      the way in and out; sessions, leaving
    ground.py       what all parts stand on: time, timers, requests, the conversation with ZooKeeper
    registering.py  REGISTERING, WAITING
    releasing.py    QUIETING … RELEASING: give up a share, keeping what was consumed
    acquiring.py    READING … BACKING_OFF, and STARTING: get a share; attempts.py: when to try again, and when not
    loading.py      LOADING: where to start
    owning.py       OWNING: look after the share
    commits.py      commits, and who waits for them
    leaving.py      how long leaving may take
    holdings.py     which owner nodes are ours, and how sure of it we are
"""

from zkgroup.protocol.member.member_machine import Member
from zkgroup.protocol.member.member_settings import Counters, MemberSettings
from zkgroup.protocol.member.phases import TRANSITIONS, Phase

__all__ = ["TRANSITIONS", "Counters", "Member", "MemberSettings", "Phase"]

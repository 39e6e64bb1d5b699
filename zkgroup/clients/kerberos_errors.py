"""What keeps a client from a login with Kerberos, at ZooKeeper and brokers alike: problems, each with its remedy."""

from __future__ import annotations

from typing import Final

CLOCKS_DIFFER: Final = ("the clocks of this machine and of the KDC differ too much", "set them (NTP)")
NO_KDC: Final = ("no KDC answers", "check krb5.conf (KRB5_CONFIG), and that the KDC runs")


def unknown_service(service: str, option: str) -> tuple[str, str]:
    """The KDC has no such principal. ``option`` names another service."""
    return (
        f"the KDC knows no service {service}",
        f"name the servers as their principals do, not by addresses, or give {option}",
    )


def no_ticket(keytab: str | None, principal: str | None, option: str) -> tuple[str, str]:
    """No ticket is there, or none was got by a keytab. ``option`` names a keytab."""
    whose = f" of {principal}" if principal else ""
    if keytab:
        return f"the keytab {keytab} has no valid key{whose}", f"check it with 'klist -k {keytab}'"
    return (
        f"there is no valid Kerberos ticket{whose}",
        f"get one with 'kinit {principal or 'USER'}', or name a keytab with {option}",
    )

"""What a transport says went wrong, and which of the four classes of error that is (design 3.4).

A status that is not known here counts as the peer lost: the round fails, the vote says no, and nothing is
believed that might not be so.
"""

from __future__ import annotations

from typing import Final

from ftruntime.protocol.errors import ErrorClass

CLASSES: Final = {
    ErrorClass.TRANSIENT: (
        # nixl: the transport gave up on one transfer
        "NIXL_ERR_BACKEND", "NIXL_ERR_CANCELED",
        # verbs: the queue pair stopped; a fresh one may do
        "IBV_WC_RETRY_EXC_ERR", "IBV_WC_RNR_RETRY_EXC_ERR", "IBV_WC_WR_FLUSH_ERR", "IBV_WC_RESP_TIMEOUT_ERR",
    ),
    ErrorClass.PEER_LOST: (
        "NIXL_ERR_REMOTE_DISCONNECT", "NIXL_ERR_NOT_FOUND",
        # the slots were taken away from this rank: the peer goes on without it
        "IBV_WC_REM_ACCESS_ERR", "IBV_WC_REM_OP_ERR", "IBV_WC_REM_ABORT_ERR",
        "closed", "reset", "refused",
    ),
    ErrorClass.LOCAL_FATAL: (
        "NIXL_ERR_INVALID_PARAM", "NIXL_ERR_NOT_ALLOWED", "NIXL_ERR_REPOST_ACTIVE", "NIXL_ERR_UNKNOWN",
        "IBV_WC_LOC_LEN_ERR", "IBV_WC_LOC_PROT_ERR", "IBV_WC_LOC_QP_OP_ERR", "IBV_WC_LOC_ACCESS_ERR",
        "IBV_WC_FATAL_ERR",
    ),
    ErrorClass.JOB_FATAL: (
        "NIXL_ERR_MISMATCH", "NIXL_ERR_NOT_SUPPORTED", "IBV_WC_REM_INV_REQ_ERR",
    ),
}  # fmt: skip
_OF: Final = {status: kind for kind, statuses in CLASSES.items() for status in statuses}


def error_class(status: str) -> ErrorClass:
    """Of a status as the transport names it; what follows a colon is explanation."""
    return _OF.get(status.partition(":")[0].strip(), ErrorClass.PEER_LOST)

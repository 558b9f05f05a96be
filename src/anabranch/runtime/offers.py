"""What was offered once, as a plan tells it."""

from __future__ import annotations

from anabranch.epoch.protocol import Offer
from anabranch.errors import ProgramError
from anabranch.state.layout import EpochPlan


def offer_of(plan: EpochPlan) -> Offer:
    """The offer that an epoch was cut of."""
    hint = plan.hint
    if hint is not None and not isinstance(hint, int):
        message = f"epoch {plan.epoch} of the checkpoint has a hint that is no time: {hint!r}"
        raise ProgramError(message)
    return Offer(
        plan.offsets, frozenset(plan.finished), hint, more=False, idle=frozenset(plan.idle)
    )

"""Optimization of a user's own kernel: adoption of its file, Step 0, and campaigns with memory."""

from mla_var3.campaign.scripts import definitions, script

__all__ = ["definitions", "script"]

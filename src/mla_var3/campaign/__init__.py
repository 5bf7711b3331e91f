"""Staged optimization of a kernel: users' files adopted, Step 0, and campaigns with memory."""

from mla_var3.campaign.scripts import definitions, script

__all__ = ["definitions", "script"]

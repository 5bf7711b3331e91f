"""Any kernel as ours are: a user's file adopted, its Step 0, and campaigns with memory."""

from mla_var3.campaign.scripts import definitions, script

__all__ = ["definitions", "script"]

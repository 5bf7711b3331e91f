"""Base version: two warpgroups share a 64x512 output, four producer warps load."""

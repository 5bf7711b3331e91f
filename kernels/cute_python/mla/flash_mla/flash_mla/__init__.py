"""Base version: two warpgroups share a 64x512 output, four warps feed them."""

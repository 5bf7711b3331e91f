"""Base version: TileGym's split-KV MLA decode in cuTile."""

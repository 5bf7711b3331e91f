import pytest


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    """One compile cache for the whole session, so that no kernel is compiled twice."""
    return tmp_path_factory.mktemp("compile_cache")

from mla_var3.languages.rebuilding import State, _trees

A, B, C = ("a" * 40, "b" * 40, "c" * 40)


def state(**sources: str) -> State:
    return State("gemm", "v0", sources, ())


def test_states_share_a_tree_where_no_file_of_theirs_differs():
    trees = _trees([state(x=A, y=A), state(y=A, z=B), state(x=C), state(z=B)])
    assert [tree.states for tree in trees] == [[0, 1, 3], [2]]
    assert trees[0].files == {"x": A, "y": A, "z": B}

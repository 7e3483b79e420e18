"""Real normal matrices, N N^T = N^T N, in an orthonormal basis; HM Claim C.1."""

from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from theory._polar import Array, check_square


def normal_form(N: ArrayLike) -> tuple[Array, Array]:
    """Return S orthonormal and D of 1 x 1 and 2 x 2 blocks, N = S D S^T; all are [..., d, d].

    D is the real Schur form of N without what stands above its blocks: 0 if N is normal, so that
    S D S^T - N measures how far it is from normal. ValueError if N is not square and finite.
    """
    S, D = _normal_form_one(check_square(N, "N"))
    return np.asarray(S), np.asarray(D)


@partial(np.vectorize, signature="(d,d)->(d,d),(d,d)")
def _normal_form_one(N: Array) -> tuple[Array, Array]:
    from scipy.linalg import schur  # takes a third of a second to import

    T, S = schur(N, output="real")
    first = np.append(np.diag(T, -1) != 0, False)  # rows where a block of two begins
    blocks = np.diag(np.diag(T)) + np.diag(np.diag(T, -1), -1)
    return S, blocks + np.diag(np.where(first[:-1], np.diag(T, 1), 0), 1)

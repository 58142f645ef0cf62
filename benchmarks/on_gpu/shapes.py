"""The sizes of each measurement, shared by ours and the peers: as in the table of targets, and tiny ones
for an emulation.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shapes:
    rope: tuple[int, int, int, int] = (1, 32, 8192, 128)
    # head width, length; 2048 channels of heads
    attend: tuple[tuple[int, int], ...] = ((128, 16384), (64, 16384))
    masked: int = 8192  # length at which SDPA gets a float mask
    learned: int = 8192
    norm: tuple[int, int] = (65536, 4096)
    entropy: tuple[int, int] = (16384, 8192)
    parameters: int = 4_800_000
    steps: tuple[tuple[int, int], ...] = ((8, 128), (32, 512))  # batch, length; width 256, 6 layers, 8 heads
    far: int = 32768
    long: int = 131072
    # of the recurrences: sequences, tokens, channels, their state, heads and their width
    scan: tuple[int, ...] = (8, 512, 1024, 16, 16, 64)
    width: int = 256
    layers: int = 6
    heads: int = 8
    channels: int = 2048


TINY = Shapes(
    rope=(1, 2, 8, 32),
    attend=((32, 9),),
    masked=9,
    learned=9,
    norm=(3, 32),
    entropy=(4, 12),
    parameters=300,
    steps=((2, 8),),
    far=21,
    long=33,
    width=16,
    layers=1,
    heads=2,
    channels=64,
)


def of(tiny: bool) -> Shapes:
    return TINY if tiny else Shapes()

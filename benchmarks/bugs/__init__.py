"""An independent exam of `check`: bugs that public trackers report, and whether they are noticed and named.

The bugs were written from golden/SPEC.md and from public threads alone, without the project's own traps and
diagnosis being read, and committed with the flags that are accepted before the first of them was run. Whoever
works at the diagnosis does not read them.

- `right/`: right programs of 47 encodings in NumPy, from the specification alone; `tape.py` gives
  derivatives. In float64 they compute in float64, else all in float32, and round once.
- `bugs_*.py`: the bugs. Each exchanges one or a few methods of a right program (`edits.py`), and says what is
  wrong in a sentence, which levels are asked, which thread reports it or its nearest kind, and which flags
  are right as its first name. None: the right answer is that no known trap fits.
- `ask.py`: all that depends on the command line and the JSON of `check`. `entry.py`: what `--impl` calls.
- `python -m benchmarks.bugs --dtype f64 --dtype f32 -o benchmarks/results/bugs.json` runs it. The file has
  the answers of the last run of the whole, without those of right programs; `bugs_first.json` has those of
  the first run.

How it is counted. Every bug counts once in each dtype, whatever the number of cases that fail, and nothing
is left out. *Noticed*: something fails. *First name*: the first flag called PROBABLE or a GUESS, or where
there is none the first named at a failing tensor, in the order of the report. *Right*: it is one of the
accepted; for a bug without accepted flags: nothing is named. *Probable right*: of bugs where a flag is
called PROBABLE, how many have an accepted one first; the first run, when a guess was called so too, counted
those as well. A bug is counted at the last of its levels. Some bugs are none in 16 bits, such as a cache in
bfloat16; they are not asked there.

Some bugs showed in no golden case when they were written (`where` says with which options, facts or positions
they show). They count as not noticed: that is what the golden files do not cover.

Flags that were added since are counted beside the accepted ones (`later.py`).

Changes since the first run, none of an accepted flag:

- The right program of none knows the settings of a layer, that of dape the bias of another encoding beside
  it, which was an option of dape before specification 0.12.0. For the same reason `dape-bias-missing` is
  asked at level attn.

136 bugs of twelve encodings that came with specifications 0.14.0 and 0.15.0 (`bugs_deltas`,
`bugs_images`, `bugs_zones`) were written in the same way, later, and are counted apart from the 558
before them.
"""

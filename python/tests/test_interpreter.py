"""The interpreter's end, forks and other interpreters while threads compute and train: the process's own status, and no signal."""

import subprocess
import sys
import textwrap

import pytest

from conftest import TEXT

BEGIN = """
import atexit, os, sys, threading, time
import numpy as np
import spillway
entered = threading.Event()
def forever(work):
    def loop():
        while True:
            work()
            entered.set()
    return loop
def begin(work, count=3):
    for _ in range(count):
        threading.Thread(target=work, daemon=True).start()
    assert entered.wait(50)
def trainer(**more):
    open("text.txt", "w").write(TEXT)
    flags = dict(model="gpt2-tiny", data="text.txt", sequence_length=16, micro_batch_size=2, steps=1000000, device_memory="256MiB", tensorboard="off", out="run")
    return spillway.Trainer(**{**flags, **more})
def quiet(line): pass
"""

WORK = {
    "product": """
a = spillway.randn((400, 400), seed=1)
begin(forever(lambda: a @ a))
""",
    "small operations": """
begin(forever(lambda: spillway.ones((3,)) + 1), 4)
""",
    "backward": """
w = spillway.ones((300000,)).requires_grad_()
begin(forever(lambda: (w * w).sum().backward()))
""",
    "model": """
model = spillway.Model("gpt2-tiny")
optimizer = spillway.AdamW(model)
def work():
    model.loss(np.arange(24).reshape(2, 12)).backward()
    optimizer.step()
begin(forever(work))
""",
    "arrays that Python makes": """
class Made:
    def __init__(self): self.array = np.ones(3)
    def __dlpack_device__(self): return self.array.__dlpack_device__()
    def __dlpack__(self, **how):
        for _ in range(1000): pass
        return self.array.__dlpack__(**how)
    def __float__(self):
        for _ in range(1000): pass
        return 1.0
begin(forever(lambda: (spillway.tensor(Made()), spillway.tensor([Made()] * 5), spillway.ones((3,)) * Made())), 4)
""",
    "rows": """
begin(forever(lambda: spillway.write_tokens("t%d.bin" % threading.get_ident(), ([i] * 1000 for i in range(300)))))
""",
    "command": """
open("text.txt", "w").write(TEXT)
begin(forever(lambda: spillway.plan(model="gpt2-tiny", device="cpu", device_memory="64MiB", host_memory="64MiB", sequence_length=32)), 1)
""",
    "training": """
begin(lambda: trainer().train(lambda event: entered.set(), log=quiet), 1)
""",
    "training, in a callback": """
def hear(event):
    entered.set()
    while True: time.sleep(0.001)
begin(lambda: trainer().train(hear, log=quiet), 1)
""",
    "training, saving": """
begin(lambda: trainer(checkpoint_every=1).train(lambda event: entered.set() if event.step > 1 else None, log=quiet), 1)
""",
    "training on two ranks": """
begin(lambda: trainer(ranks=2, communicator="local", device_memory="128MiB").train(lambda event: entered.set(), log=quiet), 1)
""",
}

ENDS = {
    "": 0,
    "sys.exit(3)": 3,
    "raise SystemExit('words')": 1,
    "os._exit(5)": 5,
    "atexit.register(lambda: print(spillway.ones((3,)).sum().item()))": 0,
}

RUNS = [(work, end) for number, work in enumerate(WORK) for end in ([*ENDS][:1] + [[*ENDS][1 + number % (len(ENDS) - 1)]])]


def start(script, folder):
    folder.mkdir()
    text = f"TEXT = {TEXT!r}\n" + BEGIN + textwrap.dedent(script)
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)


def ended(process):
    out, error = process.communicate(timeout=120)
    return process.returncode, out, error


@pytest.mark.parametrize("half", range(4))
def test_leaving_while_threads_compute(tmp_path, half):
    """End of the script, sys.exit() and others, at some moment of each kind of work: the status is the one asked for."""
    runs = RUNS[half::4]
    started = [start(WORK[work] + f"time.sleep(0.{number}3)\n{end}\n", tmp_path / str(number)) for number, (work, end) in enumerate(runs)]
    for (work, end), process in zip(runs, started):
        status, out, error = ended(process)
        assert status == ENDS[end], (work, end, error)
        assert "leaked" not in error and "terminate" not in error and "Fatal" not in error, (work, end, error)
        assert not out or out == "3.0\n"


def test_non_daemon_threads_end_first(tmp_path):
    """Python waits for them: a run that a thread trains is trained to its end, and what ends it is heard."""
    status, out, error = ended(start("""
        def work():
            print(trainer(steps=3).train(log=quiet).finished, flush=True)
        threading.Thread(target=work).start()
    """, tmp_path / "a"))
    assert (status, out, error) == (0, "True\n", "")


def test_what_computes_at_the_very_end(tmp_path):
    """atexit functions from before the import, and objects that die with their module, compute; a Trainer is refused there."""
    status, out, error = ended(start("""
        class Last:
            def __del__(self): print("del", spillway.ones((4,)).sum().item(), flush=True)
        kept = Last()
        tensor = spillway.Tensor(np.ones(3))
        def late():
            print("late", spillway.ones((5,)).sum().item())
            try:
                run.train(log=quiet)
            except spillway.UsageError as error:
                print(error)
        run = trainer(steps=1)
        atexit._run_exitfuncs()
        late()
    """, tmp_path / "a"))
    assert status == 0 and error == "", error
    assert out.splitlines()[0] == "late 5.0" and out.splitlines()[1].startswith("[train]") and out.splitlines()[2:] == ["del 4.0"]


def test_an_unfinished_run_goes_on(tmp_path):
    """As after kill -9: what was saved when the interpreter ended is there, and training goes on behind it."""
    script = """
        os.chdir(FOLDER)
        steps = []
        begin(lambda: trainer(checkpoint_every=2, steps=40).train(lambda event: steps.append(event.step),
                                                                 on_save=lambda event: entered.set() if event.step == LAST else None,
                                                                 log=quiet), 1)
        print(steps[0])
    """
    firsts = []
    for last in (6, 40):
        status, out, error = ended(start(script.replace("LAST", str(last)).replace("FOLDER", repr(str(tmp_path))), tmp_path / str(last)))
        assert status == 0, error
        firsts.append(int(out))
    assert firsts[0] == 1 and firsts[1] >= 7 and firsts[1] % 2 == 1


def test_a_fork_while_threads_compute(tmp_path):
    """The child hears an exception, and ends as any other process; the parent goes on."""
    status, out, error = ended(start("""
        a = spillway.randn((300, 300), seed=1)
        tensor, model = spillway.Tensor(np.ones(3)), spillway.Model("gpt2-tiny")
        begin(forever(lambda: (a @ a, spillway.Tensor(np.ones(3)))), 2)
        for number in range(10):
            child = os.fork()
            if child == 0:
                refused = 0
                for call in (lambda: spillway.ones((2,)), lambda: a + 1, lambda: spillway.Model("gpt2-tiny"), lambda: spillway.set_threads(2),
                             lambda: trainer(), lambda: trainer().train(log=quiet), lambda: spillway.plan(model="gpt2-tiny"), lambda: a.grad, lambda: repr(a)):
                    try:
                        call()
                    except spillway.SpillwayError:
                        refused += 1
                del tensor, model, a
                sys.exit(10 + refused)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print((spillway.ones((2,)) + 1).tolist())
    """, tmp_path / "a"))
    assert status == 0, error
    assert out.splitlines()[-1] == "[2.0, 2.0]" and set(out.splitlines()[:-1]) == {"18"}, out


def test_another_interpreter_is_refused(tmp_path):
    for number, first in enumerate(("pass", "spillway.ones((2,))")):
        status, out, error = ended(start(f"""
            try:
                import _interpreters as interpreters
            except ImportError:
                import _xxsubinterpreters as interpreters
            {first}
            other = interpreters.create()
            script = '''
            try:
                import spillway
                print("imported")
            except ImportError as error:
                print("refused", flush=True)
            '''
            import textwrap
            interpreters.run_string(other, "import sys\\nsys.path[:] = " + repr(sys.path) + "\\n" + textwrap.dedent(script))
            interpreters.destroy(other)
            print(spillway.ones((2,)).tolist())
        """, tmp_path / str(number)))
        assert status == 0, error
        assert out.splitlines() == ["refused", "[1.0, 1.0]"], (out, error)

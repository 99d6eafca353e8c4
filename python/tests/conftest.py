import pytest

# A text that a tiny model can learn. All tests use the same text.
TEXT = "".join(f"{i % 50} bottles of milk on the wall, take one down.\n" for i in range(300))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def flags(tmp_path, text):
    """Of a run of a second."""
    return dict(model="gpt2-tiny", data=text, sequence_length=16, micro_batch_size=2, steps=6, learning_rate=1e-3, device_memory="256MiB",
                checkpoint_every=2, tensorboard="off", out=tmp_path / "run")

"""Writes the checkpoints that tests/data/weights/zero_checkpoint_test.cc and tests/e2e/deepspeed_checkpoint_test.cc read, with DeepSpeed itself on
its CPU accelerator: a GPT-2 on two ranks, saved after three steps and trained for three more. Beside each lie `expected.safetensors` (the
whole weights and moments that DeepSpeed's own conversion makes, which is in `universal`) and `losses.json` of all six steps. Every step has the same four rows, those of
`tokens.bin`, so that no order of data matters.

    DS_ACCELERATOR=cpu python tests/peers/deepspeed_checkpoints.py FOLDER [CASE ...]
"""
import json
import os
import shutil
import socket
import subprocess
import sys

STEPS, ROWS, LENGTH, VOCABULARY = 3, 4, 16, 61
CASES = {
    "stage1": {"zero_optimization": {"stage": 1}},
    "stage2": {"zero_optimization": {"stage": 2}, "decay_norms": False},
    "stage3": {"zero_optimization": {"stage": 3, "sub_group_size": 400, "stage3_param_persistence_threshold": 0}},
    "robin": {"zero_optimization": {"stage": 2, "round_robin_gradients": True}, "decay_norms": False},
    "lora": {"zero_optimization": {"stage": 2}, "lora": True},
    # Not among the tests' data, for trying:
    "lora3": {"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}, "lora": True},
    "lora_whole": {"zero_optimization": {"stage": 1}, "lora": True, "with_base": True},
    "elastic": {"zero_optimization": {"stage": 1, "elastic_checkpoint": True}},
    "bf16": {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}},
    "fp16": {"zero_optimization": {"stage": 2}, "fp16": {"enabled": True, "initial_scale_power": 8, "loss_scale_window": 4}},
    "cpuadam": {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, "torch_adam": False},
    "frozen": {"zero_optimization": {"stage": 2}, "frozen": "wte"},
    "frozen3": {"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}, "frozen": "wte"},
    "groups3": {"zero_optimization": {"stage": 3, "sub_group_size": 400}, "decay_norms": False},
    "three": {"zero_optimization": {"stage": 1}, "ranks": 3},
    "three3": {"zero_optimization": {"stage": 3}, "ranks": 3},
    "stage0": {"zero_optimization": {"stage": 0}},
}


def work(case, folder):
    import deepspeed
    import torch
    import transformers

    config = dict(CASES[case])
    decay_norms, frozen, ranks = config.pop("decay_norms", True), config.pop("frozen", None), config.pop("ranks", 2)
    torch_adam = config.pop("torch_adam", True)
    lora, with_base = config.pop("lora", False), config.pop("with_base", False)
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=1, n_embd=12, n_head=2, vocab_size=VOCABULARY, n_positions=LENGTH, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        bos_token_id=None, eos_token_id=None))
    if lora:
        import peft

        if os.environ["RANK"] == "0":
            model.save_pretrained(os.path.join(folder, "base"))
        model = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn"], fan_in_fan_out=True, lora_dropout=0.0))
    for name, parameter in model.named_parameters() if not lora else []:
        parameter.requires_grad = not (frozen and frozen in name)
    groups = [{"params": [p for p in model.parameters() if p.requires_grad]}]
    if not decay_norms:
        groups = [{"params": [p for p in model.parameters() if p.ndim > 1]},
                  {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0}]
    rows = 12 if ranks == 3 else ROWS
    config.update({"train_micro_batch_size_per_gpu": rows // ranks, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
                   "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
                   "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1,
                                                             **({"torch_adam": True} if torch_adam else {})}}})
    engine, *_ = deepspeed.initialize(model=model, model_parameters=groups, config=config)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    assert world == ranks
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, VOCABULARY, (ROWS * (LENGTH) + 1,), generator=generator)
    every = torch.stack([tokens[i * LENGTH:(i + 1) * LENGTH + 1] for i in range(ROWS)])
    every = every.repeat(rows // ROWS, 1)
    own = every[rank * (rows // ranks):(rank + 1) * (rows // ranks)]
    losses = []
    for step in range(2 * STEPS):
        logits = engine(input_ids=own[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), own[:, 1:].flatten())
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        deepspeed.comm.all_reduce(mean)
        losses.append(mean.item() / world)
        if step == STEPS - 1:
            engine.save_checkpoint(folder, client_state={"universal_checkpoint_info": {"universal_checkpoint_version": 0.2}},
                                   exclude_frozen_parameters=lora and not with_base)
    if rank == 0:
        with open(os.path.join(folder, "losses.json"), "w") as file:
            json.dump(losses, file)
        model.config.save_pretrained(folder)
        with open(os.path.join(folder, "tokens.txt"), "w") as file:
            file.write(" ".join(str(t) for t in tokens.tolist()) + "\n")


def expect(folder):
    """What DeepSpeed's own conversion to a universal checkpoint makes of it."""
    import torch
    from safetensors.torch import save_file

    step = os.path.join(folder, f"global_step{STEPS}")
    universal = os.path.join(folder, "universal")
    subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", step, "--output_folder", universal,
                    "--inject_missing_state"], check=True)
    expected = {}
    zero = os.path.join(universal, "zero")
    for name in sorted(os.listdir(zero)):
        if not os.path.exists(os.path.join(zero, name, "exp_avg.pt")):
            continue  # lm_head.weight, which is the embedding
        for array in ("fp32", "exp_avg", "exp_avg_sq"):
            held = torch.load(os.path.join(zero, name, array + ".pt"), weights_only=False)
            held = held["param"] if isinstance(held, dict) else held  # of stage 3 flat
            expected[name if array == "fp32" else f"{name}.{array}"] = held.clone().contiguous()
    save_file(expected, os.path.join(folder, "expected.safetensors"))


def main(folder, cases):
    for case in cases:
        out = os.path.join(folder, case)
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        ranks = CASES[case].get("ranks", 2)
        workers = [subprocess.Popen([sys.executable, __file__, "--work", case, out],
                                    env={**os.environ, "RANK": str(r), "LOCAL_RANK": str(r), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1",
                                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}) for r in range(ranks)]
        assert all([w.wait() == 0 for w in workers]), case
        for script in ("zero_to_fp32.py", "zero_to_torch.py"):
            if os.path.exists(os.path.join(out, script)):
                os.remove(os.path.join(out, script))
        if case not in ("elastic", "stage0", "robin", "lora", "lora3", "lora_whole"):  # of round_robin_gradients it takes one parameter for another (DeepSpeed 0.19.8)
            expect(out)


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        work(sys.argv[2], sys.argv[3])
    else:
        main(sys.argv[1], sys.argv[2:] or ["stage1", "stage2", "stage3", "robin", "lora"])

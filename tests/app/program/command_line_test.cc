// Tests every class of wrong command line: the exit status is 2, stderr
// has one message that names the flag and the cure, and stdout is empty.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/app/support_app.h"
#include "trainer/settings/placement_settings.h"
#include "trainer/settings/run_settings.h"
#include "trainer/settings/suggest.h"

namespace spillway::app::command_line_test {
namespace {

struct Case {
  std::vector<std::string> args;
  std::vector<std::string> said;  // the texts that the error message must contain
};

void expect_refused(const std::vector<Case>& cases, const Host& host = FakeHost().host()) {
  for (const Case& one : cases) {
    const Outcome outcome = run_app(one.args, host);
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_EQ(outcome.out, "") << outcome.err;
    for (const std::string& piece : one.said) EXPECT_NE(outcome.err.find(piece), std::string::npos) << piece << " in: " << outcome.err;
  }
}

std::vector<std::string> train(std::vector<std::string> more) {
  more.insert(more.begin(), {"train", "--model", "gpt2-tiny", "--data", "text.txt"});
  return more;
}

TEST(CommandLine, HelpAndVersionAreResults) {
  EXPECT_EQ(run_app({"--version"}).out, "spillway 0.1.0\n");
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{{}, {"--help"}, {"-h"}, {"help"}}) {
    const Outcome outcome = run_app(args);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.err, "");
    EXPECT_NE(outcome.out.find("usage: spillway COMMAND"), std::string::npos);
  }
  for (const char* name : {"train", "plan", "generate", "export", "tokenize", "inspect", "status", "doctor", "bench", "schedule"}) {
    const Outcome flag = run_app({name, "--help"});
    EXPECT_EQ(flag.status, 0) << flag.err;
    EXPECT_NE(flag.out.find(std::string("usage: spillway ") + name), std::string::npos);
    EXPECT_EQ(run_app({"help", name}).out, flag.out);
  }
}

TEST(CommandLine, UnknownCommands) {
  expect_refused({{{"trian"}, {"spillway trian: [trian] unknown command", "did you mean train?"}},
                  {{"frobnicate"}, {"unknown command", "spillway --help"}},
                  {{"data", "inspekt"}, {"[data] unknown command"}},
                  {{"data", "inspect", "--frobnicate"}, {"[--frobnicate] unknown flag of inspect"}},
                  {{"help", "nothing"}, {"unknown command"}}});
}

TEST(CommandLine, UnknownFlagsNameTheNearest) {
  expect_refused({{train({"--stepz", "3"}), {"spillway train: [--stepz] unknown flag of train", "did you mean --steps?"}},
                  {train({"--weigth-decay=0"}), {"did you mean --weight-decay?"}},
                  {train({"--learning_rate", "1"}), {"write --learning-rate"}},
                  {train({"--Seed", "1"}), {"write --seed"}},
                  {train({"--zzzzzzzzzzzzzzzz"}), {"spillway train --help=all"}},
                  {train({"--temperature", "1"}), {"of generate"}},
                  {train({"--report-to", "wandb"}), {"metrics.jsonl"}},
                  {train({"--save_strategy", "steps"}), {"--checkpoint-every"}},
                  {{"slurm", "--nnodes", "2"}, {"is --nodes"}},
                  {train({"--nnodes", "2"}), {"torchrun"}},
                  {{"generate", "--place-optimizer", "host"}, {"of train, plan"}},
                  {{"export", "--model", "x"}, {"spillway export RUN"}},
                  {train({"-s", "3"}), {"flags have two dashes"}}});
}

TEST(CommandLine, ForeignSpellingsNameOurs) {
  const std::vector<std::pair<std::string, std::string>> spellings = {{"lr", "learning-rate"},
                                                                      {"batch-size", "micro-batch-size"},
                                                                      {"nproc-per-node", "ranks"},
                                                                      {"nproc_per_node", "ranks"},
                                                                      {"num-gpus", "ranks"},
                                                                      {"local-rank", "ranks"},
                                                                      {"local_rank", "ranks"},
                                                                      {"grad-accum", "gradient-accumulation-steps"},
                                                                      {"bf16", "precision bf16"},
                                                                      {"fp16", "precision fp16"},
                                                                      {"output-dir", "out"},
                                                                      {"max-steps", "steps"},
                                                                      {"seq-length", "sequence-length"},
                                                                      {"offload", "place-optimizer"},
                                                                      {"num-train-epochs", "epochs"},
                                                                      {"per-device-train-batch-size", "micro-batch-size"},
                                                                      {"gradient-checkpointing", "recompute"},
                                                                      {"deepspeed_config", "deepspeed"},
                                                                      {"max_grad_norm", "gradient-clipping"}};
  for (const auto& [theirs, ours] : spellings) expect_refused({{train({"--" + theirs, "1"}), {"[--" + theirs + "]", " --" + ours}}});
  expect_refused({{train({"--nnodes", "2"}), {"[--nnodes]", "srun, torchrun or mpirun", "spillway slurm --nodes N"}},
                  {train({"--verbose"}), {"--log-every 1", "log.txt"}}});
}

TEST(CommandLine, ValuesThatAreMissingOrTooMany) {
  expect_refused({{train({"--steps"}), {"[--steps] expected a value"}},
                  {train({"--steps", "--seed", "3"}), {"[--steps] expected a value"}},
                  {train({"--steps", "3", "--steps", "4"}), {"[--steps]", "got 2"}},
                  {train({"more.txt"}), {"[more.txt]", "--data A --data B"}},
                  {train({"--data", ""}), {"[--data] expected a value"}},
                  {train({"--quiet=perhaps"}), {"[--quiet] expected true or false"}},
                  {{"inspect", "a", "b"}, {"[b]"}}});
}

TEST(CommandLine, RequiredFlags) {
  expect_refused({{{"train", "--data", "x"}, {"[--model]", "train needs it"}},
                  {{"train", "--model", "gpt2-tiny"}, {"[--data]", "train needs data"}},
                  {{"generate", "--model", "x"}, {"[--prompt]", "--prompts FILE"}},
                  {{"export", "--out", "x"}, {"[RUN]", "export needs it"}},
                  {{"export", "runs/x"}, {"[--out]", "export needs it"}},
                  {{"inspect"}, {"[PATH]", "inspect needs it"}},
                  {{"status"}, {"[RUN]", "status needs it"}},
                  {{"tokenize", "--data", "x"}, {"--out X.bin"}}});
}

TEST(CommandLine, ValuesOutOfRange) {
  expect_refused({{train({"--steps", "0"}), {"[--steps] expected a value at least 1, got \"0\""}},
                  {train({"--steps", "-5"}), {"at least 1"}},
                  {train({"--steps", "1.5"}), {"whole number"}},
                  {train({"--epochs", "0"}), {"above 0"}},
                  {train({"--betas", "0.9,1"}), {"[--betas]", "[0, 1)"}},
                  {train({"--betas", "0.9"}), {"two numbers"}},
                  {train({"--betas", "0.9,0.95,0.99"}), {"[--betas]"}},
                  {train({"--validation-fraction", "1"}), {"in [0, 1)"}},
                  {train({"--dropout", "1"}), {"in [0, 1)"}},
                  {train({"--min-lr-ratio", "1.1"}), {"in [0, 1]"}},
                  {train({"--learning-rate", "nan"}), {"a number"}},
                  {train({"--learning-rate", "-1"}), {"at least 0"}},
                  {train({"--seed", "-1"}), {"at least 0"}},
                  {train({"--threads", "0"}), {"in [1, 4096]"}},
                  {train({"--keep", "0"}), {"at least 1"}},
                  {train({"--histograms-every", "-1"}), {"[--histograms-every]", "at least 0"}},
                  {train({"--data-order", "random"}), {"expected one of: shuffled sequential", "\"random\""}},
                  {train({"--device-memory", "1000"}), {"[--device-memory]", "size with its unit"}},
                  {train({"--device-memory", "0K"}), {"above 0"}},
                  {train({"--time-limit", "30"}), {"[--time-limit]", "a time"}},
                  {train({"--checkpoint-every", "often"}), {"[--checkpoint-every]"}},
                  {train({"--place-optimizer", "disk"}), {"[--place-optimizer] expected device, host, nvme, auto"}},
                  {train({"--nvme", "/scratch:500"}), {"[--nvme]", "size with its unit"}},
                  {train({"--endurance", "600"}), {"[--endurance]", "600TBW"}},
                  {train({"--endurance", "600TB"}), {"[--endurance]", "600TBW"}},
                  {train({"--profile=perhaps"}), {"[--profile] expected true or false"}},
                  {{"bench", "--threads", "0"}, {"in [1, 4096]"}},
                  {{"bench", "memroy"}, {"expected one of: memory matmul cpu-adam disk", "\"memroy\""}},
                  {{"generate", "--model", "x", "--prompt", "a", "--top-p", "0"}, {"in (0, 1]"}}});
}

TEST(CommandLine, FlagsThatExcludeEachOther) {
  expect_refused({{train({"--steps", "3", "--epochs", "1"}), {"--steps", "--epochs", "leave one out"}},
                  {train({"--gradient-accumulation-steps", "2", "--global-batch-size", "4"}), {"leave one out"}},
                  {train({"--histograms-every", "5", "--tensorboard", "off"}), {"[--histograms-every]", "--tensorboard"}},
                  {{"tokenize", "--decode", "x.bin", "--data", "t.txt", "--out", "y.bin"}, {"[--decode]", "--data"}}});
}

TEST(CommandLine, FlagsThatNeedAnother) {
  expect_refused(
      {{train({"--validate-every", "5"}), {"[--validate-every]", "--validation-fraction"}},
       {train({"--validation-steps", "5"}), {"[--validation-steps]"}},
       {train({"--prompt", "In the"}), {"--sample-every"}},
       {train({"--gradient-reduction", "micro-batch", "--zero-stage", "1"}), {"[--gradient-reduction] expected --zero-stage 2, 3"}},
       {train({"--lr-schedule", "step"}), {"[--lr-schedule] expected --lr-step-size N"}},
       {train({"--lr-gamma", "0.5"}), {"[--lr-gamma] expected --lr-schedule step"}},
       {train({"--lr-decay-steps", "5", "--lr-schedule", "step", "--lr-step-size", "3"}),
        {"[--lr-decay-steps] expected --lr-schedule wsd"}},
       {train({"--lr-schedule", "onecycle", "--warmup-steps", "5"}), {"[--warmup-steps] expected none", "got 5"}},
       {train({"--place-optimizer", "nvme"}), {"[--nvme] expected a scratch path", "SLURM_TMPDIR"}},
       {train({"--allow-change", "nonsense"}), {"[--allow-change]", "nonsense"}},
       {train({"--allow-change", "device_memory"}), {"[--allow-change]", "device_memory"}}});
}

TEST(CommandLine, AnOptimizerTakesItsOwnFlags) {
  expect_refused(
      {{train({"--momentum", "0.9"}), {"[--momentum] expected no such flag with --optimizer adamw", "of sgd, rmsprop, muon; leave it out"}},
       {train({"--optimizer", "sgd", "--betas", "0.9,0.9"}), {"[--betas]", "--optimizer sgd", "of adamw, adam, amsgrad, lion, muon"}},
       {train({"--optimizer", "lion", "--eps", "1e-8"}),
        {"[--eps]", "--optimizer lion", "of adamw, adam, amsgrad, adagrad, rmsprop, muon"}},
       {train({"--optimizer", "adam", "--nesterov"}), {"[--nesterov]", "--optimizer adam", "of sgd, muon;"}},
       {train({"--optimizer", "adafactor", "--eps", "1e-8"}), {"[--eps]", "--optimizer adafactor"}},
       {train({"--optimizer", "adafactor", "--betas", "0.9,0.9"}), {"[--betas]", "--optimizer adafactor"}},
       {train({"--optimizer", "sgd", "--alpha", "0.9"}), {"[--alpha]", "of rmsprop;"}},
       {train({"--optimizer", "adagrad", "--centered"}), {"[--centered]", "of rmsprop;"}},
       {train({"--optimizer", "sgd", "--nesterov"}), {"[sgd] expected a momentum above 0"}},
       {train({"--optimizer", "sgd", "--nesterov", "--momentum", "0.9", "--dampening", "0.1"}), {"[sgd] expected a momentum above 0"}},
       {train({"--optimizer", "rmsprop", "--momentum", "-1"}), {"[--momentum]", "at least 0"}},
       {train({"--optimizer", "rmsprop", "--alpha", "1"}), {"[--alpha]", "in [0, 1)"}},
       {train({"--optimizer", "adamax"}), {"[--optimizer] expected one of: adamw adam amsgrad sgd adagrad rmsprop lion muon adafactor"}},
       {train({"--muon-scale", "original"}), {"[--muon-scale] expected no such flag with --optimizer adamw", "of muon"}}});
}

TEST(CommandLine, WhatIsNotBuiltIsRefusedWithWhatWorks) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--place-activations", "device=1GiB,host=rest"}, "one tier for all blocks"}};
  for (const auto& [flags, works] : cases) expect_refused({{train(flags), {"[" + flags[0] + "] not built yet", works}}});
  expect_refused({{{"generate", "--model", "x", "--prompt", "a", "--checkpoint", "worst"}, {"[--checkpoint]", "worst"}},
                  {{"generate", "--model", "x", "--prompt", "a", "--checkpoint", "newest"}, {"[--checkpoint]"}},
                  {train({"--tokenizer", "none.json"}), {"[--tokenizer] expected bytes", "none.json"}},
                  {{"tokenize", "--train-vocab", "100", "--data", "x", "--out", "y"}, {"[--train-vocab]", "257"}},
                  {{"plan", "--model", "gpt2-tiny", "--cluster", "2x8"}, {"[--cluster] expected NODESxGPUSxCARD[-MEMORY],MEMORY"}}});
}

TEST(CommandLine, WhatRunsOnOneRankIsRefusedRatherThanRunSeveralTimes) {
  expect_refused({{{"export", "x", "--out", "y"}, {"[export] expected one process, got 4, which Open MPI started"}},
                  {{"generate", "--model", "x", "--prompt", "a", "--ranks", "3"}, {"[--ranks]", "Open MPI started, 4, got 3"}}},
                 FakeHost().env("OMPI_COMM_WORLD_SIZE", "4").env("OMPI_COMM_WORLD_RANK", "0").host());
  expect_refused({{train({}), {"use srun"}}, {train({"--ranks", "4"}), {"use srun"}}}, FakeHost().env("SLURM_NTASKS", "4").host());
  expect_refused({{train({"--ranks", "3"}), {"[--ranks]", "Open MPI started, 4, got 3"}}},
                 FakeHost().env("OMPI_COMM_WORLD_SIZE", "4").env("OMPI_COMM_WORLD_RANK", "0").host());
}

TEST(CommandLine, WaysOfRanksToEachOther) {
  expect_refused({{train({"--ranks", "0"}), {"[--ranks]", "in [1, 65536]"}},
                  {train({"--ranks", "1025"}), {"[--ranks] expected at most 1024 processes on one node"}},
                  {train({"--timeout", "0s"}), {"[--timeout]", "at least 1"}},
                  {train({"--rendezvous", "n1:29500"}), {"[rendezvous] expected tcp:HOST:PORT", "\"n1:29500\""}},
                  {train({"--communicator", "mpi", "--ranks", "2"}), {"[--communicator]", "spillway starts"}},
                  {train({"--communicator", "mpi", "--rendezvous", "file:x"}), {"[--communicator]", "--rendezvous file:x"}},
                  {train({"--communicator", "local", "--rendezvous", "file:x"}), {"[--communicator]", "--rendezvous file:x"}},
                  {{"slurm", "--model", "gpt2-tiny", "--data", "$SLURM_TMPDIR/x", "--ranks", "2", "--communicator", "local"},
                   {"[--communicator]", "srun starts"}}});
  expect_refused({{train({"--communicator", "local"}), {"[--communicator]", "ranks that Open MPI starts"}}},
                 FakeHost().env("OMPI_COMM_WORLD_SIZE", "4").env("OMPI_COMM_WORLD_RANK", "0").host());
  // The environment is that of an srun without PMIx, which cannot start MPI ranks.
  FakeHost srun;
  srun.env("SLURM_STEP_NUM_TASKS", "2").env("SLURM_PROCID", "0").env("SLURM_STEP_TASKS_PER_NODE", "2");
  expect_refused({{train({"--communicator", "mpi"}), {"[--communicator]", "PMIX_RANK", "--mpi=pmix"}}}, srun.host());
  const TrainConfig config = train_config({"--timeout", "2m", "--rendezvous", "tcp:[::1]:29500", "--bind", "none"});
  EXPECT_EQ(config.timeout_s, 120);
  EXPECT_EQ(config.rendezvous, "tcp:[::1]:29500");
  EXPECT_EQ(config.bind, "none");
}

TEST(CommandLine, GlobalBatchThatDoesNotDivideNamesTheLegalSizes) {
  expect_refused({{train({"--micro-batch-size", "4", "--global-batch-size", "10"}), {"multiple of 4", "8 and 12"}},
                  {train({"--micro-batch-size", "4", "--global-batch-size", "2"}), {"legal sizes are 4"}}});
  EXPECT_EQ(train_config({"--micro-batch-size", "4", "--global-batch-size", "12"}).micro_batches(), 3);
  EXPECT_EQ(train_config({"--global-batch-size", "12"}).micro_batches(4), 3);
  EXPECT_EQ(train_config({"--gradient-accumulation-steps", "5"}).micro_batches(4), 5);
  EXPECT_EQ(train_config({}).micro_batches(), 1);
}

TEST(CommandLine, FlagsReachTheConfiguration) {
  const TrainConfig c = train_config({"--steps=7",
                                      "--betas",
                                      "0.8,0.9",
                                      "--device-memory",
                                      "64MiB",
                                      "--nvme",
                                      "/scratch:2GiB",
                                      "--place-optimizer",
                                      "device=1MiB,nvme=rest",
                                      "--checkpoint-every",
                                      "1epoch",
                                      "--time-limit",
                                      "2h",
                                      "--no-final-checkpoint",
                                      "--precision",
                                      "fp64",
                                      "--prefetch",
                                      "auto",
                                      "--data",
                                      "second.bin",
                                      "--isa",
                                      "scalar",
                                      "--resume",
                                      "must",
                                      "--device",
                                      "auto"});
  EXPECT_EQ(c.steps, 7);
  EXPECT_EQ(c.betas, (std::array<double, 2>{0.8, 0.9}));
  EXPECT_EQ(c.device_memory_bytes, 64 * kMiB);
  EXPECT_EQ(c.host_memory_bytes, std::nullopt);
  EXPECT_EQ(c.nvme, (std::vector<ScratchPath>{{"/scratch", 2 * kGiB}}));
  EXPECT_TRUE(c.placement->optimizer.uses(Tier::nvme));
  EXPECT_FALSE(c.placement->optimizer.uses(Tier::host));
  EXPECT_EQ(c.run->checkpoint_every, (Cadence{Cadence::Unit::epochs, 1}));
  EXPECT_EQ(c.run->time_limit_s, 7200);
  EXPECT_TRUE(c.run->no_final_checkpoint);
  EXPECT_EQ(c.precision, Precision::fp64);
  EXPECT_EQ(c.placement->prefetch, std::nullopt);
  EXPECT_EQ(c.data, (std::vector<std::string>{"text.txt", "second.bin"}));
  EXPECT_EQ(c.isa, optim::Isa::scalar);
  EXPECT_EQ(c.resume.kind, Resume::Kind::must);
  EXPECT_EQ(c.device, std::nullopt);
}

TEST(CommandLine, NvmeWithoutAPathIsTheBatchSystemsScratch) {
  Settings settings =
      make_settings(Command::train, parse_flags(Command::train, {"--model", "gpt2-tiny", "--data", "x", "--place-optimizer", "nvme"}));
  check_settings(settings, FakeHost().env("SLURM_TMPDIR", "/local/job7").host());
  EXPECT_EQ(std::get<TrainConfig>(settings).nvme, (std::vector<ScratchPath>{{"/local/job7", std::nullopt}}));
}

TEST(CommandLine, PlanTakesTrainsFlagsWithoutData) {
  const Settings settings = settings_of(Command::plan, {"--model", "gpt2-tiny", "--device-memory", "1GiB", "--program"});
  EXPECT_TRUE(std::get<PlanConfig>(settings).program);
  EXPECT_EQ(std::get<PlanConfig>(settings).device_memory_bytes, kGiB);
}

TEST(Suggest, TheNearestWordThatIsNearEnough) {
  EXPECT_EQ(nearest("sead", {"data", "seed", "steps"}), "seed");
  EXPECT_EQ(nearest("qqqqqqqq", {"data", "seed", "steps"}), "");
}

}  // namespace
}  // namespace spillway::app::command_line_test

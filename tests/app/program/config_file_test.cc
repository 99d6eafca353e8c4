// Tests the JSON configuration file: its keys, flags that override keys,
// writing and reading it back, and the hash of all options that change results.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/app/support_app.h"
#include "trainer/settings/placement_settings.h"
#include "trainer/settings/run_settings.h"

namespace spillway::app::config_file_test {
namespace {

const std::vector<std::string> kNothing;

TrainConfig from_file(const std::string& json, const std::vector<std::string>& flags = kNothing) {
  const TemporaryFolder folder;
  return std::get<TrainConfig>(settings_of(Command::train, flags, folder.write("c.json", json)));
}

std::string rejection(const std::string& json) {
  return message_of([&] { from_file(json); });
}

bool has(const std::string& text, const std::string& piece) { return text.find(piece) != std::string::npos; }

TEST(ConfigFile, KeysAreTheFlagsWithUnderscores) {
  const TrainConfig c =
      from_file(R"({"model": "gpt2-tiny", "data": ["a.txt", "b.bin"], "learning_rate": 1e-3, "steps": 12, "betas": [0.8, 0.9],
      "from_scratch": true, "device_memory": "640MiB", "nvme": "/scratch:1GiB", "prefetch": null, "time_limit": "30m", "data_order": "sequential"})");
  EXPECT_EQ(c.model, "gpt2-tiny");
  EXPECT_EQ(c.data, (std::vector<std::string>{"a.txt", "b.bin"}));
  EXPECT_EQ(c.learning_rate, 1e-3);
  EXPECT_EQ(c.steps, 12);
  EXPECT_EQ(c.betas, (std::array<double, 2>{0.8, 0.9}));
  EXPECT_TRUE(c.from_scratch);
  EXPECT_EQ(c.device_memory_bytes, 640 * kMiB);
  EXPECT_EQ(c.nvme.front(), (ScratchPath{"/scratch", kGiB}));
  EXPECT_EQ(c.placement->prefetch, std::nullopt);
  EXPECT_EQ(c.run->time_limit_s, 1800);
  EXPECT_EQ(c.data_order, DataOrder::sequential);
}

TEST(ConfigFile, FlagsWinOverTheFile) {
  const std::string json = R"({"model": "gpt2-tiny", "data": "a.txt", "steps": 12, "seed": 5, "quiet": true, "global_batch_size": 8})";
  const TrainConfig c = from_file(json, {"--seed", "6", "--data", "b.txt", "--quiet=false"});
  EXPECT_EQ(c.seed, 6u);
  EXPECT_EQ(c.steps, 12);
  EXPECT_EQ(c.data, std::vector<std::string>{"b.txt"});
  EXPECT_FALSE(c.quiet);
  // A flag also removes keys of the configuration file that conflict with it: --epochs removes "steps".
  const TrainConfig other = from_file(json, {"--epochs", "2", "--gradient-accumulation-steps", "3"});
  EXPECT_EQ(other.steps, std::nullopt);
  EXPECT_EQ(other.epochs, 2.0);
  EXPECT_EQ(other.global_batch_size, std::nullopt);
  EXPECT_EQ(other.micro_batches(), 3);
}

TEST(ConfigFile, WrongKeysAndValues) {
  EXPECT_TRUE(has(rejection(R"({"stepz": 3})"), "[\"stepz\"] unknown key of train: did you mean \"steps\"?"));
  EXPECT_TRUE(has(rejection(R"({"lr": 3})"), "is \"learning_rate\""));
  EXPECT_TRUE(has(rejection(R"({"learning-rate": 3})"), "write \"learning_rate\""));
  EXPECT_TRUE(has(rejection(R"({"temperature": 3})"), "of generate"));
  EXPECT_TRUE(has(rejection(R"({"config": "x"})"), "[config in"));
  EXPECT_TRUE(has(rejection(R"({"steps": 3, "steps": 4})"), "expected each key once"));
  EXPECT_TRUE(has(rejection(R"({"device_memory": 1000})"), "size with its unit"));
  EXPECT_TRUE(has(rejection(R"({"steps": true})"), "[steps in"));
  EXPECT_TRUE(has(rejection(R"({"steps": {"a": 1}})"), "expected a number"));
  EXPECT_TRUE(has(rejection(R"({"steps": [1, 2]})"), "expected a number"));
  EXPECT_TRUE(has(rejection(R"({"from_scratch": 1})"), "expected true or false"));
  EXPECT_TRUE(has(rejection(R"({"model": 7})"), "expected a string"));
  EXPECT_TRUE(has(rejection(R"({"steps": 0})"), "at least 1"));
  EXPECT_TRUE(has(rejection(R"({"optimizer": "adamax"})"), "expected one of: adamw"));
  EXPECT_TRUE(has(rejection(R"({"steps": 1, "epochs": 1})"), "leave one out"));
}

TEST(ConfigFile, WhatIsNoConfiguration) {
  EXPECT_TRUE(has(rejection("steps: 3"), "expected JSON"));
  EXPECT_TRUE(has(rejection(""), "expected JSON"));
  EXPECT_TRUE(has(rejection("[1]"), "expected one JSON object"));
  EXPECT_TRUE(has(rejection("{\"steps\": 1e999}"), "got a larger one"));
  const Outcome missing = run_app({"train", "--config", "no/such/file.json"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_TRUE(has(missing.err, "no/such/file.json")) << missing.err;
  const TemporaryFolder folder;
  EXPECT_EQ(run_app({"train", "--config", folder.path().string()}).status, 2);  // a folder instead of a file is refused
}

// Returns a configuration in which no field has its default.
TrainConfig unusual() {
  return train_config({"--from-scratch",
                       "--validation-data",
                       "v.txt",
                       "--validate-every",
                       "7",
                       "--validation-steps",
                       "3",
                       "--tokenizer",
                       "bytes",
                       "--sequence-length",
                       "33",
                       "--micro-batch-size",
                       "4",
                       "--global-batch-size",
                       "24",
                       "--epochs",
                       "1.5",
                       "--data-order",
                       "sequential",
                       "--drop-last",
                       "--learning-rate",
                       "0.00031",
                       "--betas",
                       "0.87,0.951",
                       "--eps",
                       "1e-9",
                       "--weight-decay",
                       "0.3",
                       "--decay-all",
                       "--lr-schedule",
                       "linear",
                       "--warmup-steps",
                       "11",
                       "--min-lr-ratio",
                       "0.2",
                       "--gradient-clipping",
                       "0.7",
                       "--precision",
                       "fp64",
                       "--dropout",
                       "0.15",
                       "--device-memory",
                       "640MiB",
                       "--host-memory",
                       "1234567B",
                       "--nvme",
                       "/scratch:2GiB",
                       "--allow-network-nvme",
                       "--place-parameters",
                       "host",
                       "--place-gradients",
                       "device",
                       "--place-optimizer",
                       "device=1MiB,host=3MiB,nvme=rest",
                       "--place-activations",
                       "device",
                       "--io-engine",
                       "pread",
                       "--prefetch",
                       "3",
                       "--optimizer-overlap",
                       "none",
                       "--durability",
                       "checkpoint",
                       "--isa",
                       "scalar",
                       "--recompute",
                       "block",
                       "--threads",
                       "3",
                       "--seed",
                       "99",
                       "--out",
                       "runs/x",
                       "--resume",
                       "must",
                       "--allow-change",
                       "seed",
                       "--checkpoint-every",
                       "500",
                       "--no-final-checkpoint",
                       "--keep",
                       "5",
                       "--time-limit",
                       "3h",
                       "--log-every",
                       "10",
                       "--sample-every",
                       "20",
                       "--histograms-every",
                       "30",
                       "--prompt",
                       "In \"the\"\n",
                       "--quiet",
                       "--json",
                       "--zero-stage",
                       "0",
                       "--communicator",
                       "mpi"});
}

TEST(ConfigFile, WrittenConfigurationsReadBackTheSame) {
  const std::string json = to_json(unusual());
  const TrainConfig again = from_file(json);
  EXPECT_EQ(to_json(again), json);
  EXPECT_EQ(numbers_hash(again), numbers_hash(unusual()));
  EXPECT_EQ(again.nvme, unusual().nvme);
  EXPECT_EQ(again.placement->optimizer, unusual().placement->optimizer);
  EXPECT_EQ(again.host_memory_bytes, 1234567);
  EXPECT_EQ(again.run->prompt, "In \"the\"\n");
  EXPECT_EQ(again.epochs, 1.5);
  const std::string plain = to_json(train_config({}));
  EXPECT_EQ(to_json(from_file(plain)), plain);
}

// A round trip through a file does not notice a field that is neither written nor read. This test checks that every option is written.
TEST(ConfigFile, EveryBuiltOptionIsWritten) {
  const std::string json = to_json(unusual());
  for (const Option* option : options_of(Command::train)) {
    if (option->field.get) {
      EXPECT_TRUE(has(json, "\"" + option->key() + "\":")) << option->name;
    }
  }
}

TEST(ConfigFile, ResolvedAlternativesDoNotExcludeEachOther) {
  TrainConfig c = train_config({"--epochs", "2", "--global-batch-size", "4"});
  c.steps = 100;  // the trainer would derive the steps and warm-up from the epochs and the batch size
  c.gradient_accumulation_steps = 4;
  const TrainConfig again = from_file(to_json(c));
  EXPECT_EQ(again.steps, 100);
  EXPECT_EQ(again.micro_batches(), 4);
}

// numbers_hash() names the folders and the nvme states of runs, so the hash of the default options must not change when options are added.
TEST(NumbersHash, IsWhatItWasBeforeOtherOptimizers) { EXPECT_EQ(numbers_hash(train_config({})), "043f168f"); }

TEST(NumbersHash, FollowsWhatChangesNumbersAndNothingElse) {
  const std::string plain = numbers_hash(train_config({}));
  EXPECT_EQ(plain.size(), 8u);
  EXPECT_EQ(plain.find_first_not_of("0123456789abcdef"), std::string::npos);
  const std::vector<std::vector<std::string>> changing = {{"--seed", "2"},
                                                          {"--learning-rate", "1e-3"},
                                                          {"--betas", "0.9,0.96"},
                                                          {"--precision", "fp64"},
                                                          {"--data-order", "sequential"},
                                                          {"--drop-last"},
                                                          {"--micro-batch-size", "2"},
                                                          {"--global-batch-size", "2"},
                                                          {"--sequence-length", "32"},
                                                          {"--dropout", "0.1"},
                                                          {"--weight-decay", "0"},
                                                          {"--decay-all"},
                                                          {"--lr-schedule", "linear"},
                                                          {"--lr-schedule", "step", "--lr-step-size", "3"},
                                                          {"--lr-schedule", "polynomial", "--lr-power", "2"},
                                                          {"--warmup-steps", "3"},
                                                          {"--min-lr-ratio", "0"},
                                                          {"--schedule-steps", "9"},
                                                          {"--loss-scale-window", "9"},
                                                          {"--gradient-clipping", "0"},
                                                          {"--data", "b.txt"},
                                                          {"--validation-fraction", "0.1"},
                                                          {"--from-scratch"},
                                                          {"--isa", "scalar"},
                                                          {"--eps", "1e-7"},
                                                          {"--optimizer", "adam", "--betas", "0.9,0.95", "--weight-decay", "0.1"},
                                                          {"--optimizer", "sgd"},
                                                          {"--optimizer-group", "bias:lr=1"},
                                                          {"--optimizer", "sgd", "--momentum", "0.9"},
                                                          {"--optimizer", "sgd", "--momentum", "0.9", "--nesterov"},
                                                          {"--optimizer", "rmsprop"},
                                                          {"--optimizer", "rmsprop", "--centered"}};
  for (const auto& flags : changing) EXPECT_NE(numbers_hash(train_config(flags)), plain) << flags[0];
  const std::vector<std::vector<std::string>> free = {{"--steps", "9"},
                                                      {"--epochs", "3"},
                                                      {"--device-memory", "1GiB"},
                                                      {"--place-optimizer", "host"},
                                                      {"--threads", "3"},
                                                      {"--prefetch", "2"},
                                                      {"--recompute", "block"},
                                                      {"--io-engine", "pread"},
                                                      {"--out", "runs/y"},
                                                      {"--keep", "9"},
                                                      {"--nvme", "/scratch"},
                                                      {"--checkpoint-every", "5"},
                                                      {"--validation-data", "v"},
                                                      {"--durability", "checkpoint"},
                                                      {"--log-every", "5"},
                                                      {"--quiet"}};
  for (const auto& flags : free) EXPECT_EQ(numbers_hash(train_config(flags)), plain) << flags[0];
}

TEST(NumbersHash, TheSameBatchTheSameRun) {
  EXPECT_EQ(numbers_hash(train_config({"--global-batch-size", "8", "--micro-batch-size", "2"})),
            numbers_hash(train_config({"--gradient-accumulation-steps", "4", "--micro-batch-size", "2"})));
}

TEST(NumbersHash, AWarmupThatFollowsFromTheStepsIsAsFreeAsThey) {
  TrainConfig resolved = train_config({"--steps", "1000"});
  resolved.warmup_steps = default_warmup_steps(resolved.lr_schedule, 1000);
  EXPECT_EQ(numbers_hash(resolved), numbers_hash(train_config({})));
  resolved.warmup_steps = 11;
  EXPECT_NE(numbers_hash(resolved), numbers_hash(train_config({})));
  EXPECT_EQ(default_warmup_steps(optim::Schedule::Kind::cosine, 99), 0);
  EXPECT_EQ(default_warmup_steps(optim::Schedule::Kind::cosine, 10'000'000), 2000);
}

TEST(ScheduleOver, HasWhatWasGivenAndFollowsTheStepsInTheRest) {
  const auto over = [](std::vector<std::string> flags, i64 steps) {
    TrainConfig config = train_config(flags);
    config.steps = 1000;
    config.learning_rate = 0.5;
    if (!config.warmup_steps) config.warmup_steps = default_warmup_steps(config.lr_schedule, *config.steps);
    return schedule_over(config, steps);
  };
  const optim::Schedule wsd = over({"--lr-schedule", "wsd"}, 500);
  EXPECT_EQ(wsd.learning_rate, 0.5);
  EXPECT_EQ(wsd.warmup_steps, 5);
  EXPECT_EQ(wsd.decay_steps, 50);
  EXPECT_EQ(over({"--lr-schedule", "wsd", "--lr-decay-steps", "7", "--warmup-steps", "3"}, 500).decay_steps, 7);
  EXPECT_EQ(over({"--lr-schedule", "wsd", "--warmup-steps", "3"}, 500).warmup_steps, 3);
  const optim::Schedule step = over({"--lr-schedule", "step", "--lr-step-size", "9", "--lr-gamma", "0.5"}, 500);
  EXPECT_EQ(step.step_size, 9);
  EXPECT_EQ(step.gamma, 0.5);
  EXPECT_EQ(over({"--lr-schedule", "polynomial", "--lr-power", "2"}, 500).power, 2);
  const optim::Schedule cycle = over({"--lr-schedule", "onecycle", "--lr-pct-start", "0.4"}, 500);
  EXPECT_EQ(cycle.pct_start, 0.4);
  EXPECT_EQ(cycle.warmup_steps, 0);
  EXPECT_EQ(cycle.steps, 500);
}

// A run may only be continued with the same number of warm-up steps, whether the flag gives that number or it is the default. The default
// is 1 for 100 steps, but not for 900.
TEST(NumberChanges, AWarmupThatIsTheSameIsNoChange) {
  const std::string before = to_json(train_config({"--steps", "100", "--warmup-steps", "1"}));
  EXPECT_TRUE(number_changes(before, train_config({"--steps", "900", "--warmup-steps", "1"})).empty());
  EXPECT_EQ(number_changes(before, train_config({"--steps", "900", "--warmup-steps", "2"})).size(), 1u);
}

TEST(NumberChanges, ListsWhatDiffersButNotWhatIsAllowed) {
  const std::string before = to_json(train_config({"--steps", "100", "--seed", "1", "--threads", "2"}));
  EXPECT_TRUE(
      number_changes(before, train_config({"--steps", "900", "--seed", "1", "--threads", "8", "--place-optimizer", "host"})).empty());
  EXPECT_EQ(number_changes(before, train_config({"--seed", "2", "--learning-rate", "0.001"})),
            (std::vector<std::string>{"seed: 1 -> 2", "learning_rate: null -> 0.001"}));
  EXPECT_EQ(number_changes(before, train_config({"--seed", "2", "--learning-rate", "0.001", "--allow-change", "seed", "--allow-change",
                                                 "learning-rate"})),
            std::vector<std::string>{});
  try {
    number_changes("{", train_config({}));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data);
  }
}

TEST(DefaultOut, IsTheModelsNameAndTheHash) {
  TrainConfig c = train_config({});
  EXPECT_EQ(default_out(c), "runs/gpt2-tiny-" + numbers_hash(c));
  for (const char* model : {"/models/llama", "./llama/", "org/llama"}) {
    c.model = model;
    EXPECT_TRUE(default_out(c).starts_with("runs/llama-")) << default_out(c);
  }
  c.model = "..";
  EXPECT_TRUE(default_out(c).starts_with("runs/model-"));
}

TEST(Configuration, CopiesHoldSettingsOfTheirOwn) {
  TrainConfig first;
  first.placement->prefetch = 3;
  TrainConfig copy = first, assigned;
  assigned = first;
  TrainConfig moved = std::move(assigned);
  first.placement->prefetch = 4;
  EXPECT_EQ(copy.placement->prefetch, 3);
  EXPECT_EQ(moved.placement->prefetch, 3);
  moved.run->log_every = 7;
  EXPECT_EQ(copy.run->log_every, 1);
}

}  // namespace
}  // namespace spillway::app::config_file_test

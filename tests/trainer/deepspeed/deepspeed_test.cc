// Tests how a DeepSpeed configuration is translated into Spillway's flags: which keys become which flag and value, which are mentioned in a
// note, and which are refused by name.
#include "trainer/deepspeed/deepspeed.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "trainer/deepspeed/keys.h"

namespace spillway::trainer::deepspeed_test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using Flags = std::map<std::string, std::string>;

Flags flags_of(const DeepspeedFlags& read) {
  Flags flags;
  for (const auto& [name, given] : read.given) flags[name] = read_text(given.values.front(), given.what);
  return flags;
}
Flags taken(const std::string& text) { return flags_of(read_deepspeed_text(text, "ds.json")); }
std::string said(const std::string& text) {
  std::string all;
  for (const std::string& note : read_deepspeed_text(text, "ds.json").notes) all += note + "\n";
  return all;
}
std::string refusal(const std::string& text) {
  try {
    taken(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    return error.what();
  }
  return "taken";
}

const std::string kOffloaded = R"({
  "train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 3e-5, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 500, "warmup_min_lr": 0, "warmup_max_lr": 4e-5,
                                                    "warmup_num_steps": 50, "warmup_type": "linear"}},
  "bf16": {"enabled": true}, "fp16": {"enabled": false, "initial_scale_power": 16},
  "gradient_clipping": 0.5,
  "zero_optimization": {"stage": 3, "overlap_comm": true, "reduce_bucket_size": 5e8,
    "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", "pin_memory": true, "buffer_count": 4, "fast_init": false},
    "offload_param": {"device": "cpu", "pin_memory": true}},
  "aio": {"block_size": 1048576, "queue_depth": 8},
  "steps_per_print": 20, "wall_clock_breakdown": false})";

TEST(Deepspeed, AnOffloadedStageThreeIsTaken) {
  EXPECT_EQ(taken(kOffloaded), (Flags{{"micro-batch-size", "4"},  {"global-batch-size", "64"}, {"optimizer", "adamw"},
                                      {"learning-rate", "4e-05"}, {"betas", "0.8,0.999"},      {"eps", "1e-08"},
                                      {"weight-decay", "3e-07"},  {"decay-all", "true"},       {"lr-schedule", "linear"},
                                      {"min-lr-ratio", "0"},      {"warmup-steps", "50"},      {"steps", "500"},
                                      {"schedule-steps", "501"},  {"precision", "bf16"},       {"gradient-clipping", "0.5"},
                                      {"zero-stage", "3"},        {"place-optimizer", "nvme"}, {"place-parameters", "host"},
                                      {"nvme", "/local_nvme"},    {"log-every", "20"}}));
  const std::string notes = said(kOffloaded);
  EXPECT_THAT(notes, HasSubstr("zero_optimization.reduce_bucket_size, zero_optimization.offload_optimizer.pin_memory"));
  EXPECT_THAT(notes, HasSubstr("aio.block_size, aio.queue_depth: the plan chooses"));
  EXPECT_THAT(notes, Not(HasSubstr("logarithm"))) << "warmup_type is linear";
  EXPECT_THAT(notes, Not(HasSubstr("fp16"))) << "of what is off nothing is said";
}

// A key that a DeepSpeed file leaves out takes DeepSpeed's default, not the default of Spillway's train command.
TEST(Deepspeed, DefaultsAreDeepspeeds) {
  EXPECT_EQ(taken(R"({"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "Adam"}})"), (Flags{{"micro-batch-size", "2"},
                                                                                                     {"optimizer", "adamw"},
                                                                                                     {"learning-rate", "0.001"},
                                                                                                     {"weight-decay", "0"},
                                                                                                     {"decay-all", "true"},
                                                                                                     {"betas", "0.9,0.999"},
                                                                                                     {"lr-schedule", "constant"},
                                                                                                     {"warmup-steps", "0"},
                                                                                                     {"precision", "fp32"},
                                                                                                     {"gradient-clipping", "0"}}));
  EXPECT_EQ(taken("{}"), (Flags{{"precision", "fp32"}, {"gradient-clipping", "0"}}));
}

// A value "auto" sets no flag, and a note lists such keys. The configuration is an example of transformers, most of whose values are
// "auto".
TEST(Deepspeed, AutoIsLeftToTheFlags) {
  const std::string text = R"({
    "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16}, "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"},
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto"})";
  EXPECT_EQ(taken(text), (Flags{{"optimizer", "adamw"}, {"decay-all", "true"}, {"lr-schedule", "constant"}, {"zero-stage", "2"}}));
  EXPECT_THAT(said(text), HasSubstr("optimizer.params.lr, optimizer.params.betas"));
  EXPECT_THAT(said(text), HasSubstr("train_micro_batch_size_per_gpu: auto, "));
  EXPECT_THAT(said(text), HasSubstr("rises with the logarithm"));
}

// Like DeepSpeed, a run doubles the loss scale after 1000 steps without overflow, or after loss_scale_window steps if the file gives it.
TEST(Deepspeed, TheLossScalesWindowIsTaken) {
  EXPECT_EQ(taken(R"({"fp16": {"enabled": true}})")["loss-scale-window"], "1000");
  EXPECT_EQ(taken(R"({"fp16": {"enabled": true, "loss_scale_window": 100}})")["loss-scale-window"], "100");
  EXPECT_EQ(taken(R"({"fp16": {"enabled": "auto", "loss_scale_window": 100}})")["loss-scale-window"], "100");
  EXPECT_FALSE(taken(R"({"fp16": {"enabled": false, "loss_scale_window": 100}})").contains("loss-scale-window"));
  EXPECT_THAT(refusal(R"({"fp16": {"enabled": true, "loss_scale_window": 0}})"), HasSubstr("fp16.loss_scale_window in ds.json"));
}

// After the warm-up the learning rate of step s equals the rate of DeepSpeed's WarmupDecayLR, lr * max(0, (total - s) / max(1, total -
// max(2, warm-up))), for any value of --steps.
TEST(Deepspeed, TheLinearRateFallsToZeroAtTotalNumSteps) {
  for (const auto& [total, warmup, steps] : {std::tuple(20, 4, 12), {20, 4, 30}, {7, 0, 7}, {300, 100, 299}}) {
    const Flags flags = taken(fmt::format(R"({{"optimizer": {{"type": "AdamW", "params": {{"lr": 1e-3}}}}, "scheduler": {{"type":
        "WarmupDecayLR", "params": {{"warmup_max_lr": 1e-3, "warmup_num_steps": {}, "total_num_steps": {}}}}}}})",
                                          warmup, total));
    TrainConfig config;
    config.lr_schedule = optim::Schedule::Kind::linear, config.learning_rate = 1e-3, config.min_lr_ratio = 0, config.steps = steps;
    config.warmup_steps = std::stoll(flags.at("warmup-steps")), config.schedule_steps = std::stoll(flags.at("schedule-steps"));
    EXPECT_EQ(flags.at("steps"), std::to_string(total)) << "where no flag says how many";
    const double least = std::max(2, warmup);
    for (int s = static_cast<int>(least); s < steps; ++s) {
      const double theirs = 1e-3 * std::max(0.0, (total - s) / std::max(1.0, total - least));
      EXPECT_NEAR(optim::learning_rate(schedule_over(config, config.curve_steps()), s), theirs, 1e-18) << total << ", step " << s;
    }
  }
}

TEST(Deepspeed, EachOptimizerHasItsRule) {
  const auto optimizer = [](const std::string& type, const std::string& params) {
    Flags flags = taken(R"({"optimizer": {"type": ")" + type + R"(", "params": )" + params + "}}");
    for (const char* key : {"decay-all", "lr-schedule", "warmup-steps", "precision", "gradient-clipping"}) flags.erase(key);
    return flags;
  };
  EXPECT_EQ(optimizer("Adam", R"({"adam_w_mode": false, "lr": 1})"),
            (Flags{{"optimizer", "adam"}, {"learning-rate", "1"}, {"weight-decay", "0"}, {"betas", "0.9,0.999"}}));
  EXPECT_EQ(optimizer("Adam", R"({"adam_w_mode": false, "amsgrad": true})")["optimizer"], "amsgrad");
  EXPECT_EQ(optimizer("AdamW", R"({"torch_adam": true})")["weight-decay"], "0.01") << "torch.optim.AdamW's own";
  EXPECT_EQ(optimizer("Lion", "{}"),
            (Flags{{"optimizer", "lion"}, {"learning-rate", "0.001"}, {"weight-decay", "0"}, {"betas", "0.9,0.99"}}));
  EXPECT_EQ(optimizer("SGD", R"({"lr": 0.1, "momentum": 0.9, "nesterov": true})"),
            (Flags{{"optimizer", "sgd"}, {"learning-rate", "0.1"}, {"weight-decay", "0"}, {"momentum", "0.9"}, {"nesterov", "true"}}));
  EXPECT_EQ(optimizer("RMSprop", R"({"alpha": 0.9, "centered": true})"),
            (Flags{{"optimizer", "rmsprop"}, {"learning-rate", "0.01"}, {"weight-decay", "0"}, {"alpha", "0.9"}, {"centered", "true"}}));
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "OneBitAdam"}})"), HasSubstr("[optimizer.type in ds.json] expected AdamW, Adam, Adagrad"));
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "Lamb"}})"), HasSubstr("(instead of this one: AdamW), got \"Lamb\""));
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "AdamW", "params": {"weight_decy": 0}}})"), HasSubstr("did you mean weight_decay?"));
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1}}})"), HasSubstr("gradient_clipping"));
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "AdamW", "params": {"amsgrad": true}}})"), HasSubstr("optimizer.params.amsgrad"));
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.9]}}})"), HasSubstr("expected two numbers, got [0.9]"));
}

TEST(Deepspeed, BatchesAreOfAllRanks) {
  EXPECT_EQ(taken(R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4})")["gradient-accumulation-steps"], "4");
  const Flags all = taken(R"({"train_batch_size": 32, "gradient_accumulation_steps": 4})");
  EXPECT_EQ(all.at("global-batch-size"), "32");
  EXPECT_FALSE(all.contains("gradient-accumulation-steps")) << "it follows from the ranks";
  EXPECT_THAT(refusal(R"({"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})"),
              HasSubstr("expected a multiple of train_micro_batch_size_per_gpu x gradient_accumulation_steps, 8 rows, got 30"));
  EXPECT_THAT(refusal(R"({"train_batch_size": 0})"), HasSubstr("expected from 1 to 2147483647, got 0"));
  // The product of micro-batch size and accumulation steps, 2^32 each, would overflow to 0 in 64 bits.
  EXPECT_THAT(
      refusal(R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4294967296, "gradient_accumulation_steps": 4294967296})"),
      HasSubstr("expected from 1 to 2147483647, got 4294967296"));
  EXPECT_THAT(refusal(R"({"train_batch_size": 2.5})"), HasSubstr("expected a whole number, got 2.5"));
}

TEST(Deepspeed, TheRestHasItsFlags) {
  const Flags flags = taken(R"({"zero_optimization": {"stage": 2, "cpu_offload": true},
    "activation_checkpointing": {"partition_activations": true, "cpu_checkpointing": true},
    "pipeline": {"stages": 4}, "csv_monitor": {"enabled": true, "output_path": "x"}, "flops_profiler": {"enabled": true},
    "data_types": {"grad_accum_dtype": "bf16"}})");
  for (const auto& [name, value] : Flags{{"zero-stage", "2"},
                                         {"place-optimizer", "host"},
                                         {"recompute", "block"},
                                         {"place-activations", "host"},
                                         {"pipeline-stages", "4"},
                                         {"metrics-csv", "true"},
                                         {"profile", "true"},
                                         {"gradient-dtype", "bf16"}})
    EXPECT_THAT(flags, Contains(std::pair(name, value)));
  EXPECT_EQ(taken(R"({"zero_optimization": true})")["zero-stage"], "1");
  EXPECT_FALSE(taken(R"({"zero_optimization": {"offload_optimizer": {"device": "none"}}})").contains("place-optimizer"));
}

TEST(Deepspeed, WhatThereIsNotIsRefusedByName) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"zero_optimisation": {"stage": 3}})",
       "[zero_optimisation in ds.json] DeepSpeed has no such key; did you mean zero_optimization?"},
      {R"({"zero_optimization": {"stage": 3, "offload_params": {}}})", "did you mean zero_optimization.offload_param"},
      {R"({"zero_optimization": {"zero_quantized_weights": true}})", "true is not supported: "},
      {R"({"zero_optimization": {"offload_optimizer": {"device": "nvme", "ratio": 0.3}}})", "--place-optimizer device=4GiB,host=rest"},
      {R"({"zero_optimization": {"offload_optimizer": {"device": "gpu"}}})", "expected none, cpu or nvme, got \"gpu\""},
      {R"({"zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": "/a"},
                                 "offload_param": {"device": "nvme", "nvme_path": "/b"}}})",
       "expected the same nvme_path for parameters and optimizer, got /b and /a"},
      {R"({"fp16": {"enabled": true, "loss_scale": 128}})", "fp16.loss_scale in ds.json] 128 is not supported"},
      {R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})", "expected either fp16.enabled or bf16.enabled"},
      {R"({"fp16": true})", "[fp16 in ds.json] expected an object, got true"},
      {R"({"bf16": {"enabled": 1}})", "expected true or false, got 1"},
      {R"({"amp": {"enabled": true, "opt_level": "O1"}})", "amp.enabled"},
      {R"({"curriculum_learning": {"enabled": true}})", "curriculum_learning.enabled"},
      {R"({"compression_training": {"weight_quantization": {"shared_parameters": {"enabled": true}}}})", "compression_training"},
      {R"({"tensor_parallel": {"autotp_size": 2}})", "--zero-stage 3 or --pipeline-stages"},
      {R"({"scheduler": {"type": "OneCycle"}})", "--lr-schedule onecycle"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_step": 3}}})", "did you mean warmup_num_steps?"},
      {R"({"gradient_clipping": {"value": 1}})", "expected one value"},
      {R"({"steps_per_print": 1, "steps_per_print": 2})", "expected each key once, got `steps_per_print` twice"},
      {R"({"fp16": {"enabled": false, "enabled": true}})", "expected each key once, got `enabled` twice"},
      {R"({"fp16": )", "[--deepspeed] ds.json: expected JSON, got a syntax error in line 1"},
      {R"([])", "expected one JSON object"}};
  for (const auto& [text, words] : cases) EXPECT_THAT(refusal(text), HasSubstr(words)) << text;
}

TEST(Deepspeed, WhatAsksForNothingIsTaken) {
  EXPECT_EQ(refusal(R"({"fp16": {"enabled": true, "loss_scale": 0, "fp16_master_weights_and_grads": false},
    "amp": {"enabled": false, "opt_level": "O1"}, "autotuning": {"enabled": false, "fast": true}, "curriculum_learning": {},
    "zero_optimization": {"zero_hpz_partition_size": 1, "zero_quantized_weights": false, "zenflow": null},
    "compression_training": {"layer_reduction": {"enabled": false, "keep_number_layer": 5},
      "weight_quantization": {"shared_parameters": {"enabled": false}, "different_groups": {}}},
    "_comment": "as public files have it",
    "gradient_allreduce_op": "mean", "wandb": {"enabled": true, "project": "x"}, "tensorboard": {"enabled": true}})"),
            "taken");
}

// A flag of Spillway on the command line overrides a DeepSpeed key that sets the same thing, even under another name.
TEST(Deepspeed, FlagsWin) {
  const GivenMap theirs = read_deepspeed_text(kOffloaded, "ds.json").given;
  const GivenMap flags = parse_flags(Command::train, {"--epochs", "2", "--learning-rate", "1", "--gradient-accumulation-steps", "3"});
  const GivenMap all = merge(Command::train, flags, theirs);
  EXPECT_FALSE(all.contains("steps"));
  EXPECT_FALSE(all.contains("global-batch-size"));
  EXPECT_EQ(all.at("learning-rate").values, std::vector<Value>{"1"});
  EXPECT_EQ(all.at("place-optimizer").what, "zero_optimization.offload_optimizer.device in ds.json");
}

// The train command accepts every flag that a DeepSpeed file is translated into.
TEST(Deepspeed, EveryFlagIsOneOfTrains) {
  GivenMap given = read_deepspeed_text(kOffloaded, "ds.json").given;
  EXPECT_GT(given.size(), 15u);
  const Settings settings = make_settings(Command::train, given, true);
  const auto& train = std::get<TrainConfig>(settings);
  EXPECT_EQ(train.steps, 500);
  EXPECT_EQ(train.learning_rate, 4e-5);
}

}  // namespace
}  // namespace spillway::trainer::deepspeed_test

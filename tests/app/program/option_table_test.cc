// Tests invariants of the table of all options, and that --help shows every documented flag with its default.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "app/help/help.h"
#include "models/presets.h"
#include "tests/app/support_app.h"

namespace spillway::app::option_table_test {
namespace {

constexpr Command kCommands[] = {Command::train,   Command::plan,     Command::generate,    Command::export_model, Command::tokenize,
                                 Command::inspect, Command::status,   Command::doctor,      Command::bench,        Command::schedule,
                                 Command::slurm,   Command::selftest, Command::evaluate,    Command::chat,         Command::classify,
                                 Command::report,  Command::top,      Command::import_model};

// Lists every flag in train's option table, with its default as --help shows it ("" if there is none).
const std::vector<std::pair<std::string, std::string>> kTrainFlags = {
    {"model", ""},
    {"from-scratch", ""},
    {"data", ""},
    {"validation-data", ""},
    {"validation-fraction", "0"},
    {"validate-every", "at the end"},
    {"validation-steps", "all"},
    {"tokenizer", "the model folder's own; bytes for presets"},
    {"sequence-length", "the model's"},
    {"micro-batch-size", "1 (images: 64)"},
    {"gradient-accumulation-steps", "1"},
    {"global-batch-size", ""},
    {"steps", "1 epoch"},
    {"epochs", "1"},
    {"data-order", "shuffled"},
    {"drop-last", ""},
    {"workers", "the number of compute threads"},
    {"image-size", "the first image's height and width"},
    {"augment", "none"},
    {"optimizer", "adamw"},
    {"learning-rate", "3e-4 (2e-5 when weights are loaded)"},
    {"betas", "0.9,0.95 (adam, amsgrad 0.9,0.999; lion 0.9,0.99)"},
    {"eps", "1e-08 (adagrad 1e-10)"},
    {"weight-decay", "0.1 (adamw, muon; else 0)"},
    {"momentum", "0 (muon 0.95)"},
    {"dampening", "0"},
    {"nesterov", "off (muon on)"},
    {"alpha", "0.99"},
    {"muon-scale", "match-rms-adamw"},
    {"centered", ""},
    {"optimizer-group", "none"},
    {"decay-all", ""},
    {"lr-schedule", "cosine"},
    {"warmup-steps", "1 % of the steps, at most 2000"},
    {"schedule-steps", "--steps"},
    {"keep-schedule", ""},
    {"min-lr-ratio", "0.1"},
    {"lr-step-size", "none"},
    {"lr-gamma", "0.1"},
    {"lr-power", "1"},
    {"lr-pct-start", "0.3"},
    {"lr-decay-steps", "10 % of the steps"},
    {"gradient-clipping", "1"},
    {"loss-scale-window", "2000"},
    {"ema", "off"},
    {"precision", "fp32, on a GPU bf16"},
    {"tf32-matmul", ""},
    {"tf32-conv", ""},
    {"attention", "auto"},
    {"dropout", "0 for presets; what config.json says for folders"},
    {"freeze", "none"},
    {"lora", "off"},
    {"lora-alpha", "twice the rank"},
    {"lora-targets", "all-linear"},
    {"lora-dropout", "0"},
    {"lora-rank-scaling", "plain"},
    {"base-weights", "as --precision; bf16 if the folder's weights are bf16 and the precision is fp32 (the same numbers)"},
    {"adapter", "none"},
    {"data-format", "auto"},
    {"loss-on", "auto"},
    {"packing", "on"},
    {"chat-template", "the model folder's own"},
    {"data-cache", "data-cache beside the run's folder"},
    {"skip-bad-lines", ""},
    {"device", "best found"},
    {"device-memory", "GPU: free memory - 512MiB; CPU: the grant less --host-memory"},
    {"host-memory", "the grant; on the CPU less --device-memory, if that is given"},
    {"nvme", "none; SIZE: free space - 5 %"},
    {"allow-network-nvme", ""},
    {"place-parameters", "auto"},
    {"place-gradients", "auto"},
    {"place-optimizer", "auto"},
    {"place-activations", "auto"},
    {"io-engine", "auto"},
    {"prefetch", "auto"},
    {"optimizer-overlap", "auto"},
    {"master-weights", "fp32"},
    {"moments", "fp32"},
    {"gradient-dtype", "fp32"},
    {"gradient-reduction", "step"},
    {"durability", "checkpoint"},
    {"isa", "best"},
    {"recompute", "auto"},
    {"zero-stage", "auto"},
    {"ranks", "1, or the launcher's"},
    {"pipeline-stages", "1"},
    {"pipeline-schedule", "1f1b; with one stage the faster order"},
    {"pipeline-split", "auto"},
    {"pipeline-chunks", "2 for interleaved and zb-v, else 1"},
    {"communicator", "auto"},
    {"rendezvous", "auto"},
    {"threads", "the cores granted by affinity, cgroup and SLURM_CPUS_PER_TASK, or OMP_NUM_THREADS if that is less"},
    {"bind", "auto"},
    {"seed", "1337"},
    {"out", "runs/<model>-<8 hex digits>"},
    {"resume", "auto"},
    {"allow-change", ""},
    {"checkpoint-every", "30m"},
    {"no-final-checkpoint", ""},
    {"keep", "2"},
    {"rehearse", ""},
    {"time-limit", "Slurm's end time"},
    {"sample-every", "0"},
    {"prompt", ""},
    {"tensorboard", "on"},
    {"histograms-every", "0"},
    {"metrics-csv", ""},
    {"trace", "off"},
    {"trace-steps", "3:6"},
    {"profile", ""},
    {"audit", ""},
    {"detect-anomaly", ""},
    {"log-every", "1"},
    {"timeout", "60s"},
    {"endurance", "off"},
    {"quiet", ""},
    {"json", ""},
    {"config", ""},
    {"deepspeed", ""}};

TEST(OptionTable, TrainHelpShowsEveryFlagOfTheContractWithItsDefault) {
  const std::string help = command_help(Command::train);
  for (const auto& [name, value] : kTrainFlags) {
    const size_t at = help.find("\n  --" + name + (help.find("\n  --" + name + "\n") == std::string::npos ? " " : "\n"));
    ASSERT_NE(at, std::string::npos) << name;
    std::istringstream words(help.substr(at + 1, help.find("\n  --", at + 1) - at - 1));
    std::string entry;
    for (std::string word; words >> word;) entry += " " + word;
    if (!value.empty()) {
      EXPECT_NE(entry.find(" [" + value + "]"), std::string::npos) << entry;
    }
  }
  EXPECT_EQ(options_of(Command::train).size(), kTrainFlags.size()) << "a flag is not in the contract";
}

TEST(OptionTable, HelpNamesUnits) {
  const std::string help = command_help(Command::train);
  for (const char* piece :
       {"--device-memory SIZE", "--time-limit TIME", "--nvme PATH[:SIZE]", "--precision auto|fp32|fp64|bf16|fp16|tf32|fp8",
        "--checkpoint-every STEPS|TIME|1epoch", "Sizes: 640MiB", "Times: 30s", "--model MODEL  (required)"}) {
    EXPECT_NE(help.find(piece), std::string::npos) << piece;
  }
}

TEST(OptionTable, HelpFitsEightyColumns) {
  std::istringstream program(program_help());
  for (std::string line; std::getline(program, line);) EXPECT_LE(line.size(), 80u) << line;
  for (const Command command : kCommands) {
    std::istringstream lines(command_help(command));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  }
}

// The short help of train shows the flags that decide what is trained and what fits, on a terminal of 40 rows.
TEST(OptionTable, ShortHelpFitsAScreen) {
  for (const Command command : {Command::train, Command::plan}) {
    std::istringstream lines(short_help(command));
    int rows = 0;
    for (std::string line; std::getline(lines, line); ++rows) EXPECT_LE(line.size(), 80u) << line;
    EXPECT_LT(rows, 40) << "a pager shows this many without waiting for a key";
  }
  const std::string help = short_help(Command::train);
  for (const char* flag : {"model", "data", "lora", "base-weights", "place-parameters", "place-gradients", "place-optimizer",
                           "place-activations", "optimizer", "gradient-accumulation-steps", "zero-stage", "deepspeed", "device-memory"})
    EXPECT_NE(help.find(std::string("\n  --") + flag + " "), std::string::npos) << flag << " in:\n" << help;
  EXPECT_EQ(help.find("--min-lr-ratio"), std::string::npos) << help;
}

TEST(OptionTable, NamesAreUniqueWithinACommand) {
  for (const Command command : kCommands) {
    std::set<std::string> seen;
    for (const Option* option : options_of(command)) EXPECT_TRUE(seen.insert(option->name).second) << option->name;
  }
}

TEST(OptionTable, RowsAreWhole) {
  for (const Option& option : options()) {
    EXPECT_FALSE(option.group.empty()) << option.name;
    EXPECT_FALSE(option.help.empty()) << option.name;
    EXPECT_NE(option.commands, 0u) << option.name;
    if (option.name != "config" && option.name != "deepspeed") {
      EXPECT_TRUE(option.field.set && option.field.get) << option.name;
    }
    if (!option.exclusive.empty()) {
      EXPECT_TRUE(std::ranges::any_of(kCommands, [&](Command c) { return option.belongs_to(c) && find_option(c, option.exclusive); }))
          << option.name;
    }
    EXPECT_EQ(option.name.find('_'), std::string::npos) << option.name;
  }
}

// The help of --model names exactly the model presets that are built in.
TEST(OptionTable, HelpNamesThePresetsThatAreBuilt) {
  std::istringstream words(find_option(Command::train, "model")->help);
  std::set<std::string> named, built;
  for (std::string word; words >> word;) {
    while (!word.empty() && (word.back() == ';' || word.back() == ',')) word.pop_back();
    if (models::is_preset(word)) named.insert(word);
  }
  for (const std::string_view name : models::preset_names()) built.emplace(name);
  EXPECT_EQ(named, built);
}

// Reads each option's field in the settings of each command that has the option. A field of another command's settings would throw.
TEST(OptionTable, EveryFieldCanBeReadInEveryCommandItBelongsTo) {
  for (const Command command : kCommands) {
    const Settings settings = default_settings(command);
    for (const Option* option : options_of(command)) {
      if (!option->field.get) continue;
      EXPECT_NO_THROW(option->field.get(settings)) << option->name;
    }
  }
}

// The value that --help shows as an option's default must be accepted as the option's value and change nothing.
TEST(OptionTable, DefaultsAreLegalValues) {
  const std::string plain = to_json(TrainConfig{});
  for (const Option* option : options_of(Command::train)) {
    if (!option->default_text.empty() || !option->field.set || option->shown_default().empty()) continue;
    const GivenMap given = {{option->name, {{option->shown_default()}, "--" + option->name}}};
    EXPECT_EQ(to_json(std::get<TrainConfig>(make_settings(Command::train, given, true))), plain) << option->name;
  }
}

}  // namespace
}  // namespace spillway::app::option_table_test

// Implements `spillway slurm`, which prints a job script for sbatch that runs the same training. The script
// names no port or host: the ranks find each other through srun. When a job's time is nearly over, Slurm
// sends the job the signal USR1. The job then saves a checkpoint, exits with 75, and is queued again.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "app/commands/commands.h"
#include "trainer/node/own_program.h"
#include "trainer/settings/text.h"

namespace spillway::app {
namespace {

constexpr i64 kLongestWarning_s = 300;

// Quotes a word for bash. Slurm's own variables are not escaped, so that the node that runs the job expands them.
std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "-_=./:,+@%";
  const bool plain = !word.empty() && std::ranges::all_of(word, [&](unsigned char c) {
    return std::isalnum(c) || kPlain.find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return word;
  std::string text = "\"";
  for (size_t i = 0; i < word.size(); ++i) {
    const bool variable = word.compare(i, 7, "$SLURM_") == 0;
    if (std::string_view("\"\\$`").find(word[i]) != std::string_view::npos && !variable) text += '\\';
    text += word[i];
  }
  return text + "\"";
}

// Returns the cores per node of the partition `wanted`, or of the default partition if `wanted` is empty. If the partition's
// nodes differ, the smallest number is returned. The result is empty if Slurm does not answer or is not on this machine.
std::optional<i64> cores_of_partition(const std::string& wanted) {
  std::FILE* told = ::popen("timeout 5 sinfo -h -o '%P %c' 2>/dev/null", "r");
  if (!told) return {};
  std::optional<i64> least;
  std::array<char, 512> line{};
  while (std::fgets(line.data(), line.size(), told)) {
    std::istringstream words(line.data());
    std::string partition;
    i64 cores = 0;
    if (!(words >> partition >> cores) || cores < 1) continue;
    const bool is_default = partition.ends_with('*');
    if (is_default) partition.pop_back();
    if (wanted.empty() ? is_default : partition == wanted) least = std::min(least.value_or(cores), cores);
  }
  ::pclose(told);
  return least;
}

// Returns the cores of one rank. A remainder of the node's cores stays unused.
std::optional<i64> cores_each(const SlurmConfig& config) {
  if (config.cpus_per_task) return config.cpus_per_task;
  if (config.threads) return config.threads;
  const std::optional<i64> cores = cores_of_partition(config.partition);
  return cores ? std::optional(std::max<i64>(1, *cores / (config.ranks / config.nodes))) : std::nullopt;
}

std::string header(const SlurmConfig& config, std::optional<i64> cores) {
  std::string text;
  const auto line = [&](const std::string& option) { text += "#SBATCH --" + option + "\n"; };
  line("job-name=spillway");
  line(fmt::format("nodes={}", config.nodes));
  line(fmt::format("ntasks-per-node={}", config.ranks / config.nodes));
  if (config.gpus > 0) line(fmt::format("gpus-per-node={}{}{}", config.gpu_type, config.gpu_type.empty() ? "" : ":", config.gpus));
  if (cores) line(fmt::format("cpus-per-task={}", *cores));
  if (config.memory_bytes) line(fmt::format("mem={}M", std::max<i64>(1, *config.memory_bytes / kMiB)));
  if (config.time_s) line(fmt::format("time={}:{:02}:{:02}", *config.time_s / 3600, *config.time_s / 60 % 60, *config.time_s % 60));
  if (!config.account.empty()) line("account=" + config.account);
  if (!config.partition.empty()) line("partition=" + config.partition);
  if (!config.output.empty()) line("output=" + config.output);
  line(fmt::format("signal=USR1@{}", config.time_s ? std::min(kLongestWarning_s, *config.time_s / 3) : kLongestWarning_s));
  line("requeue");
  line("open-mode=append");
  for (const std::string& directive : config.directives) text += "#SBATCH " + directive + "\n";
  return text;
}

}  // namespace

int run_slurm(const SlurmConfig& config, Console& console) {
  const std::optional<i64> cores = cores_each(config);
  std::string text = "#!/bin/bash\n" + header(config, cores);
  if (!cores) text += "# Slurm decides how many cores a rank gets; --cpus-per-task N asks for N.\n";
  for (const std::string& module : config.modules) text += "\nmodule load " + quoted(module);
  text +=
      "\n# A secret by which the ranks of this job recognize each other.\n"
      "export SPILLWAY_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \\n')\n";
  text += "\n# A rank that ends must not end the other ranks.\nsrun --kill-on-bad-exit=0";
  if (cores) text += fmt::format(" --cpus-per-task={}", *cores);
  text += " " + quoted(own_program()) + " train";
  for (const std::string& word : config.train_words) text += (word.starts_with("--") ? " \\\n  " : " ") + quoted(word);
  text +=
      "\nstatus=$?\n\n# Status 75: the run saved and stopped. Queue the job again to resume it.\n"
      "if [ $status -eq 75 ]; then scontrol requeue \"$SLURM_JOB_ID\"; fi\nexit $status";
  if (console.json()) {
    const nlohmann::ordered_json all = {{"script", text}};
    console.result(all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    console.stream(text + "\n");  // a script's lines must stay whole, however narrow the terminal is
  }
  return 0;
}

}  // namespace spillway::app

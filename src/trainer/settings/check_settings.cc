// Implements check_settings(), which checks settings that concern more than one option, or the node that the program runs on.
#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "data/files/file.h"
#include "parallel/sockets/meeting_place.h"
#include "trainer/node/launcher.h"
#include "trainer/settings/cluster.h"
#include "trainer/settings/given.h"
#include "trainer/settings/pipeline_wish.h"
#include "trainer/settings/placement_settings.h"
#include "trainer/settings/run_settings.h"
#include "trainer/settings/text.h"
#include "trainer/settings/update_rule.h"
#include "trainer/settings/weighted_path.h"

namespace spillway::trainer {
namespace {

void check_tokenizer(const std::string& tokenizer) {
  if (tokenizer == "bytes" || std::filesystem::exists(tokenizer)) return;
  refuse("[--tokenizer] expected bytes, a tokenizer.json or the folder that contains one, got " + tokenizer +
         ", which does not exist: nothing is downloaded; `hf download ORG/NAME tokenizer.json` gets one of the Hugging Face Hub");
}

void check_activations(const PlacementWish& wish) {
  if (wish.automatic || wish.one_tier()) return;
  refuse("[--place-activations] not built yet: a split of activations over tiers, " + print_placement(wish) +
         "; expected one tier for all blocks, or auto");
}

// Sets the scratch path if a --place flag asks for nvme and no --nvme path was given. The path is the batch system's scratch folder;
// without such a folder the settings are refused.
void find_nvme(ResourceConfig& config, bool wanted, const Host& host) {
  if (!wanted || !config.nvme.empty()) return;
  const auto scratch = host.env("SLURM_TMPDIR");
  if (!scratch)
    refuse(
        "[--nvme] expected a scratch path, because a --place flag asks for nvme, got none, and $SLURM_TMPDIR is not set: give --nvme PATH");
  config.nvme.push_back({*scratch, std::nullopt});
}

void check_ranks(const TrainConfig& config) {
  if (config.rehearse && config.communicator == "mpi")
    refuse("[--rehearse] expected ranks that spillway starts itself, got --communicator mpi: leave --communicator out");
  pipeline_of(config);
  if (config.ranks > 1) check_stages(config);
  if (config.reduce_each && config.placement->zero_stage && *config.placement->zero_stage < 2)
    refuse(
        "[--gradient-reduction] expected --zero-stage 2, 3 or auto with micro-batch, because each rank then stores only its shard of the "
        "gradients, got --zero-stage " +
        std::to_string(*config.placement->zero_stage) + ": leave --gradient-reduction or --zero-stage out");
}

void check_validation(const TrainConfig& config) {
  if (!config.validation_data.empty() || config.validation_fraction > 0) return;
  const Settings given = config;
  for (const Option* option : options_of(Command::train)) {
    if (option->needs_validation_data && is_given(*option, given))
      refuse("[--" + option->name +
             "] expected --validation-data or --validation-fraction as well, got neither: give one of them, or leave --" + option->name +
             " out");
  }
}

void check_schedule(const TrainConfig& config) {
  using enum optim::Schedule::Kind;
  const Settings given = config;
  const std::string schedule = find_option(Command::train, "lr-schedule")->field.get(given)->front();
  for (const Option* option : options_of(Command::train)) {
    if (!option->of_lr_schedule.empty() && option->of_lr_schedule != schedule && is_given(*option, given))
      refuse("[--" + option->name + "] expected --lr-schedule " + option->of_lr_schedule +
             " as well, got another schedule: change the schedule or leave this flag out");
  }
  if (config.lr_schedule == step && !config.lr_step_size)
    refuse(
        "[--lr-schedule] expected --lr-step-size N with the schedule step, got none: the rate is multiplied by --lr-gamma every N steps");
  if (config.lr_schedule == onecycle && config.warmup_steps.value_or(0) > 0)
    refuse("[--warmup-steps] expected none with --lr-schedule onecycle, whose warm-up is set by --lr-pct-start, got " +
           std::to_string(*config.warmup_steps) + ": leave --warmup-steps out");
}

// Checks the names of --allow-change. Users may write them with dashes or
// underscores. They are stored with underscores, like the keys of the configuration.
void check_allowed(TrainConfig& config) {
  for (std::string& key : config.allow_change) {
    std::string name = key;
    std::ranges::replace(name, '_', '-');
    std::ranges::replace(key, '-', '_');
    const Option* option = find_option(Command::train, name);
    if (option == nullptr) refuse("[--allow-change] expected the name of an option of train, got \"" + key + "\"");
    if (!option->changes_numbers)
      refuse("[--allow-change] expected an option that changes numbers, got \"" + key +
             "\", which may change without --allow-change: leave it out");
  }
}

void check(TrainConfig& config, const Host& host) {
  if (config.tokenizer) check_tokenizer(*config.tokenizer);
  check_activations(config.placement->activations);
  check_ranks(config);
  check_schedule(config);
  resolve_order(config);
  resolve_update_rule(config);
  check_allowed(config);
  config.micro_batches();
  if (!config.run->prompt.empty() && config.run->sample_every == 0)
    refuse("[--prompt] expected --sample-every N as well, got none: no samples are printed without it; give it, or leave --prompt out");
  if (config.run->histograms_every > 0 && !config.run->tensorboard)
    refuse(
        "[--histograms-every] expected --tensorboard on, got off: histograms are written only to TensorBoard's event files; leave one of "
        "the two flags out");
  const auto wants = [](const PlacementWish& wish) { return wish.uses(Tier::nvme); };
  find_nvme(config,
            wants(config.placement->parameters) || wants(config.placement->gradients) || wants(config.placement->optimizer) ||
                wants(config.placement->activations),
            host);
}

// Refuses to train as one bare process inside a Slurm allocation of several tasks, because srun was probably
// forgotten. Other commands are allowed there, because a batch script may start one process beside its srun steps.
void check_bare_start(const Host& host) {
  const Launcher launcher = detect_launcher(host);
  if (launcher.bare_slurm_tasks > 1) {
    refuse("[--ranks] expected srun to start the ranks of a Slurm allocation of " + std::to_string(launcher.bare_slurm_tasks) +
           " tasks, got a start without srun: use srun");
  }
}

void check_launcher(const RanksConfig& config, const Host& host) {
  const Launcher launcher = detect_launcher(host);
  if (!launcher.name.empty() && config.ranks != 1 && config.ranks != launcher.ranks) {
    refuse("[--ranks] expected the number of ranks that " + launcher.name + " started, " + std::to_string(launcher.ranks) + ", got " +
           std::to_string(config.ranks) + ": leave --ranks out");
  }
  constexpr i64 kMostOfANode = 1024;
  if (launcher.name.empty() && config.ranks > kMostOfANode) {
    refuse("[--ranks] expected at most " + std::to_string(kMostOfANode) + " processes on one node, got " + std::to_string(config.ranks) +
           ": start more of them with srun or mpirun on several nodes");
  }
  const bool has_place = config.rendezvous != "auto" && config.rendezvous != "env";
  if (has_place) parallel::MeetingPlace(config.rendezvous);
  const bool says_how = config.rendezvous != "auto";
  const std::string got =
      says_how ? "--rendezvous " + config.rendezvous : "ranks that " + (launcher.name.empty() ? "spillway" : launcher.name) + " starts";
  const bool own = launcher.shares_cores() || (launcher.name.empty() && config.ranks > 1) || says_how;
  if (config.communicator == "mpi" && own)
    refuse("[--communicator] expected ranks started by mpirun or srun, and no --rendezvous, for mpi, got " + got +
           ": leave --communicator out");
  if (config.communicator == "local" && (!launcher.name.empty() || says_how))
    refuse("[--communicator] expected no launcher and no --rendezvous with local, whose ranks are threads of one process, got " + got +
           ": leave --communicator out");
  if (config.communicator == "mpi" && launcher.name == "srun" && launcher.ranks > 1 && !came_with_mpi(launcher, host))
    refuse(
        "[--communicator] expected srun to set up MPI for --communicator mpi, got neither PMIX_RANK nor PMI_RANK in its environment: use "
        "srun --mpi=pmix if srun --mpi=list names pmix, use mpirun inside the job, or leave --communicator out (the ranks then connect "
        "without MPI)");
}

void check_checkpoint(const std::string& which) {
  if (which != "last" && which != "best" && parse_integer(which, "--checkpoint") < 1)
    refuse("[--checkpoint] expected last, best or a step from 1, got \"" + which + "\"");
}

// Runs the checks that are common to generate, chat, evaluate and classify, the commands that do only forward passes.
void check_forward(RanksConfig& config, const Host& host) {
  check_launcher(config, host);
  if (config.ranks > 1) check_stages(config);
  check_checkpoint(config.checkpoint);
  if (config.tokenizer) check_tokenizer(*config.tokenizer);
  check_activations(config.placement->activations);
  // a forward pass has no optimizer state and no gradients, so they are placed on the device, where they take no bytes
  config.placement->gradients = config.placement->optimizer = PlacementWish::whole(Tier::device);
  find_nvme(config, config.placement->parameters.uses(Tier::nvme), host);
}

void check(GenerateConfig& config, const Host& host) {
  check_forward(config, host);
  if (!config.prompt && !config.prompts)
    refuse("[--prompt] expected a text to continue, or --prompts FILE, got neither: generate needs one of them");
}
void check(EvaluateConfig& config, const Host& host) { check_forward(config, host); }
void check(ClassifyConfig& config, const Host& host) { check_forward(config, host); }

void check_one_process(const std::string& command, const std::string& why, const Host& host) {
  const Launcher launcher = detect_launcher(host);
  if (launcher.ranks == 1) return;
  refuse("[" + command + "] expected one process, got " + std::to_string(launcher.ranks) + ", which " + launcher.name + " started: " + why);
}

void check(ChatConfig& config, const Host& host) {
  check_one_process("chat", "chat runs in one process; generate --prompts can use several processes", host);
  check_forward(config, host);
  if (config.ranks > 1)
    refuse("[--ranks] expected 1 for chat, got " + std::to_string(config.ranks) +
           ": leave --ranks out; generate --prompts can use several ranks");
}

void check(ExportConfig& config, const Host& host) {
  check_one_process("export", "export reads checkpoints of any number of ranks; start it without a launcher", host);
  check_checkpoint(config.checkpoint);
}

void check(ImportConfig&, const Host& host) { check_one_process("import", "import reads one file; start it without a launcher", host); }

void check(TokenizeConfig& config, const Host&) {
  check_tokenizer(config.tokenizer);
  const bool encode = !config.data.empty() || !config.out.empty();
  if (config.decode.empty() && (config.data.empty() || config.out.empty())) {
    refuse("[tokenize] expected --data TEXT with --out X.bin, or --decode X.bin, got neither");
  }
  if (!config.decode.empty() && encode)
    refuse("[--decode] expected neither --data nor --out with this flag, got one of them: encode and decode in two commands");
}

void check(InspectConfig& config, const Host&) {
  if (config.tokenizer) check_tokenizer(*config.tokenizer);
}
void check(StatusConfig&, const Host&) {}
void check(TopConfig&, const Host&) {}
void check_page(const std::optional<std::string>& file, const char* flag) {
  if (file && !file->ends_with(".html")) refuse(std::string("[") + flag + "] expected a name that ends in .html, got \"" + *file + "\"");
}
void check(ReportConfig& config, const Host&) { check_page(config.out, "--out"); }
void check(DoctorConfig&, const Host&) {}
void check(BenchConfig&, const Host& host) {
  if (detect_launcher(host).name != "spillway")
    check_one_process("bench", "bench starts the ranks that it needs; start it without a launcher", host);
}
void check(SelftestConfig&, const Host&) {}

// Checks a value that is written into an #SBATCH directive, one line of the job script. The value must not contain anything that would
// end the line or begin another word.
void check_directive(const std::string& flag, const std::string& value) {
  const bool plain = std::ranges::all_of(value, [](unsigned char c) {
    return c < 128 && (std::isalnum(c) || std::string_view("_-.,:+@/=").find(static_cast<char>(c)) != std::string_view::npos);
  });
  if (!plain)
    refuse("[" + flag + "] expected a name of letters, digits and _-.,:+@/= only, as in Slurm's names, got " + data::in_quotes(value));
}

// Checks an option that --sbatch adds to the job script. It must stay one line, and must not be one that the script has already.
void check_sbatch(const std::string& line, const SlurmConfig& config) {
  constexpr std::string_view kNeeded[] = {"signal", "requeue", "no-requeue", "open-mode"};
  const size_t dashes = line.starts_with("--") ? 2 : line.starts_with("-") ? 1 : 0;
  const size_t name_end = dashes == 1 ? 2 : std::min(line.find_first_of("= "), line.size());
  if (dashes == 0 || name_end <= dashes || line.size() < name_end)
    refuse("[--sbatch] expected an option of sbatch with its dashes, such as \"-C ib\", got " + data::in_quotes(line));
  if (std::ranges::any_of(line, [](unsigned char c) { return c < ' ' || c == 127; }))
    refuse("[--sbatch] expected one line without control characters, got " + data::in_quotes(line));
  const std::string name = line.substr(dashes, name_end - dashes);
  if (dashes == 2 && std::ranges::count(kNeeded, name) > 0)
    refuse("[--sbatch] expected no " + data::in_quotes(line) + ": the script needs its own, so that the run can save and continue");
  const Settings settings = config;
  for (const Option* option : options_of(Command::slurm)) {
    if ((name.size() == 1) != (dashes == 1) || std::ranges::count(option->sbatch, name) == 0) continue;
    if (option->always_in_script || is_given(*option, settings))
      refuse("[--sbatch] expected an option that the script does not have yet, got " + data::in_quotes(line) + ": use --" + option->name);
  }
}

// Checks the values of options that become words of Slurm's.
void check_directives(const SlurmConfig& config) {
  const Settings settings = config;
  for (const Option* option : options_of(Command::slurm)) {
    if (!option->is_slurms_name || !is_given(*option, settings)) continue;
    const auto texts = option->field.get(settings);
    if (texts) check_directive("--" + option->name, texts->front());
  }
  for (const std::string& line : config.directives) check_sbatch(line, config);
}

// Refuses the flag's path if it does not exist. A path with a shell variable is not checked, because only the job can expand it.
void check_there(const char* flag, const std::string& path) {
  std::error_code none;
  if (path.find('$') == std::string::npos && !std::filesystem::exists(path, none))
    refuse(std::string("[") + flag + "] expected " + path + " to exist, got no such file or folder: the job would fail at its start");
}

// Checks the settings of `spillway slurm`. The node that prints the job script does not train, so only the existence
// of model and data is checked: a job should not wait in the queue and then fail because a file is missing.
void check(SlurmConfig& config, const Host&) {
  if (config.data.empty()) refuse("[--data] expected text or token files, got nothing: the training in the job needs data");
  for (const std::string& path : weighted_paths(config.data).paths) check_there("--data", path);
  for (const std::string& path : config.validation_data) check_there("--validation-data", path);
  if (config.model.starts_with("/") || config.model.starts_with("./") || config.model.starts_with("../"))
    check_there("--model", config.model);
  check_directives(config);
  if (!config.gpu_type.empty() && config.gpus == 0) refuse("[--gpu-type] expected --gpus N as well, got no GPUs");
  if (config.gpu_type.find_first_of(":,=") != std::string::npos)
    refuse("[--gpu-type] expected the name of one kind of GPU, such as h100, got " + data::in_quotes(config.gpu_type) +
           ": --gpus says how many");
  if (std::ranges::any_of(config.output, [](unsigned char c) { return c <= ' ' || c == 127; }))
    refuse("[--output] expected a file name without spaces, got " + data::in_quotes(config.output));
  if (config.threads && config.cpus_per_task && *config.threads > *config.cpus_per_task) {
    refuse("[--threads] expected at most the " + std::to_string(*config.cpus_per_task) + " of --cpus-per-task, got " +
           std::to_string(*config.threads) + ": threads that share a core wait for each other");
  }
  const i64 ranks = config.gpus > 0 ? config.nodes * config.gpus : config.ranks;
  if (config.gpus > 0 && config.ranks != 1 && config.ranks != ranks) {
    refuse("[--ranks] expected " + std::to_string(ranks) + ", one for each GPU, got " + std::to_string(config.ranks) +
           ": leave --ranks out");
  }
  if (ranks % config.nodes != 0) {
    refuse("[--ranks] expected a multiple of --nodes " + std::to_string(config.nodes) + ", got " + std::to_string(config.ranks));
  }
  config.ranks = ranks;
  if (config.communicator == "local" && ranks > 1)
    refuse(
        "[--communicator] expected auto or mpi, because srun starts the ranks, got local, whose ranks are threads of one process: "
        "leave --communicator out");
}

void check(ScheduleConfig& config, const Host&) {
  if (config.out && !config.out->ends_with(".svg")) refuse("[--out] expected a name that ends in .svg, got \"" + *config.out + "\"");
  if (config.csv && !config.csv->ends_with(".csv")) refuse("[--csv] expected a name that ends in .csv, got \"" + *config.csv + "\"");
}

// Fills in the settings that --cluster describes. Refuses flags whose values the cluster determines.
void take_cluster(PlanConfig& config) {
  if (!config.cluster) return;
  const Settings given = config;
  for (const Option* option : options_of(Command::plan)) {
    if (option->set_by_cluster && is_given(*option, given))
      refuse("[--cluster] expected no --" + option->name +
             " with this flag, because --cluster sets the same value, got both: leave one out");
  }
  plan_for(config, parse_cluster(*config.cluster, "--cluster"));
}

}  // namespace

void check_own_settings(TrainConfig& config, const Host& host) {
  check_values(Command::train, config);
  check_launcher(config, host);
  check_bare_start(host);
  check(config, host);
}

void check_settings(Settings& settings, const Host& host) {
  if (auto* train = std::get_if<TrainConfig>(&settings)) {
    if (train->data.empty()) refuse("[--data] expected text or token files, got nothing: train needs data");
    check_launcher(*train, host);
    check_bare_start(host);
    check_validation(*train);
  }
  if (auto* plan = std::get_if<PlanConfig>(&settings)) {
    take_cluster(*plan);
    check_page(plan->html, "--html");
    check_validation(*plan);
    return check(static_cast<TrainConfig&>(*plan), host);
  }
  std::visit([&](auto& config) { check(config, host); }, settings);
}

}  // namespace spillway::trainer

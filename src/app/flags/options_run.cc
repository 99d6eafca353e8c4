// Options for the run folder, its checkpoints, and the output during a run.
#include "app/flags/field.h"

namespace spillway::app {
namespace {

constexpr const char *kRun = "Run folder", *kShown = "What is shown";
const unsigned kAll = on(Command::train, Command::plan, Command::generate, Command::chat, Command::export_model, Command::tokenize,
                         Command::inspect, Command::status, Command::doctor, Command::bench, Command::schedule, Command::slurm,
                         Command::selftest, Command::evaluate, Command::classify, Command::report, Command::top, Command::import_model);

Option unbuilt(const char* name, const char* group, Kind kind, const char* metavar, const char* help, const char* instead) {
  return {.name = name,
          .group = group,
          .help = help,
          .field = no_field(kind),
          .commands = kTrain,
          .metavar = metavar,
          .default_text = kind == Kind::flag ? "" : "off",
          .instead = instead,
          .built = false};
}

std::vector<Option> run_folder() {
  return {
      {.name = "out",
       .group = kRun,
       .help = "run folder; the digits hash every key that changes numbers, so the same command finds its own folder",
       .field = text(&TrainConfig::out),
       .commands = kTrain,
       .metavar = "DIR",
       .default_text = "runs/<model>-<8 hex digits>"},
      {.name = "resume",
       .group = kRun,
       .help = "auto: go on from the newest complete checkpoint, else start; never; must; or a checkpoint's path, DeepSpeed's too",
       .field = composite(&TrainConfig::resume, parse_resume, print_resume),
       .commands = kTrain,
       .metavar = "auto|never|must|PATH"},
      {.name = "rehearse",
       .group = kRun,
       .help = "instead of the run: a few real steps, a save, kill -9 and going on, in a folder that goes; bits, times and memory beside "
               "the plan",
       .field = flag(&TrainConfig::rehearse),
       .commands = on(Command::train)},
      {.name = "allow-change",
       .group = kRun,
       .help = "repeatable: a key that changes numbers and may differ from the run's",
       .field = text(&TrainConfig::allow_change),
       .commands = kTrain,
       .metavar = "KEY"},
      {.name = "checkpoint-every",
       .group = kRun,
       .help = "steps (500), time (30m) or 1epoch; also at the end and on a signal",
       .field = composite(&TrainConfig::checkpoint_every, parse_cadence, print_cadence),
       .commands = kTrain,
       .metavar = "STEPS|TIME|1epoch"},
      {.name = "no-final-checkpoint",
       .group = kRun,
       .help = "save nothing at the end",
       .field = flag(&TrainConfig::no_final_checkpoint),
       .commands = kTrain},
      {.name = "keep",
       .group = kRun,
       .help = "newest complete checkpoints kept",
       .field = integer(&TrainConfig::keep),
       .commands = kTrain,
       .range = at_least(1)},
      unbuilt("keep-weights-every", kRun, Kind::integer, "STEPS", "weights alone kept for good", "export RUN --checkpoint N writes them"),
      {.name = "time-limit",
       .group = kRun,
       .help = "stop where the next step and two saves would not end before it, save and exit 75",
       .field = duration(&TrainConfig::time_limit_s),
       .commands = kTrain,
       .default_text = "Slurm's end time",
       .range = above(0)},
  };
}

std::vector<Option> shown() {
  return {
      {.name = "log-every",
       .group = kShown,
       .help = "optimizer steps between progress lines",
       .field = integer(&TrainConfig::log_every),
       .commands = kTrain,
       .metavar = "STEPS",
       .range = at_least(1)},
      {.name = "sample-every",
       .group = kShown,
       .help = "optimizer steps between samples of generated text; 0 is off",
       .field = integer(&TrainConfig::sample_every),
       .commands = kTrain,
       .metavar = "STEPS",
       .range = at_least(0)},
      {.name = "prompt",
       .group = kShown,
       .help = "what the samples of --sample-every start with",
       .field = text(&TrainConfig::prompt),
       .commands = kTrain},
      {.name = "tensorboard",
       .group = kShown,
       .help = "event files in the run folder: numbers of every step, samples of text, histograms, the configuration",
       .field = choice(&TrainConfig::tensorboard, {{"on", true}, {"off", false}}),
       .commands = kTrain},
      {.name = "histograms-every",
       .group = kShown,
       .help = "optimizer steps between histograms of each trained parameter in the event files; 0 is off",
       .field = integer(&TrainConfig::histograms_every),
       .commands = kTrain,
       .metavar = "STEPS",
       .range = at_least(0)},
      {.name = "metrics-csv",
       .group = kShown,
       .help = "metrics.csv in the run folder, a row a step",
       .field = flag(&TrainConfig::metrics_csv),
       .commands = kTrain},
      {.name = "trace",
       .group = kShown,
       .help = "write a trace of some steps for ui.perfetto.dev: instructions by lane, the disk's reads and writes, bytes by tier",
       .field = text(&TrainConfig::trace),
       .commands = kTrain,
       .metavar = "FILE",
       .default_text = "off"},
      {.name = "trace-steps",
       .group = kShown,
       .help = "first and last step of --trace, from 1",
       .field = composite(&TrainConfig::trace_steps, parse_step_range, print_step_range),
       .commands = kTrain,
       .metavar = "A:B"},
      {.name = "profile",
       .group = kShown,
       .help = "at the end a table: time and rate of each kind of instruction, on a CPU also of each op, beside what bench measured",
       .field = flag(&TrainConfig::profile),
       .commands = kTrain},
      {.name = "detect-anomaly",
       .group = kShown,
       .help = "end the run (exit 7) at the first op, forward or backward, whose result is not finite, and say which it is, where, and "
               "what it was made of; changes no number, reads every result (4 % of a step on a CPU; a GPU waits for each op)",
       .field = flag(&TrainConfig::detect_anomaly),
       .commands = kTrain},
      {.name = "endurance",
       .group = kShown,
       .help = "rated writes of one --nvme drive: says in how many days this run would have written them",
       .field = composite(&TrainConfig::endurance_bytes, parse_endurance, print_endurance),
       .commands = kTrain,
       .metavar = "600TBW",
       .default_text = "off"},
      {.name = "config",
       .group = kShown,
       .help = "read flags from a JSON file (dashes become underscores); flags win over it",
       .field = no_field(Kind::text),
       .commands = kAll,
       .metavar = "FILE"},
      {.name = "deepspeed",
       .group = kShown,
       .help =
           "read a DeepSpeed configuration: each of its keys is taken, said to have no part, or refused; flags and --config win over it",
       .field = no_field(Kind::text),
       .commands = kTrain,
       .metavar = "FILE"},
      {.name = "quiet", .group = kShown, .help = "no progress, no log", .field = flag(&CommonConfig::quiet), .commands = kAll},
      {.name = "json", .group = kShown, .help = "results as JSON on stdout", .field = flag(&CommonConfig::json), .commands = kAll},
  };
}

}  // namespace

std::vector<Option> run_options() {
  std::vector<Option> all = run_folder();
  for (auto& option : shown()) all.push_back(std::move(option));
  return all;
}

}  // namespace spillway::app

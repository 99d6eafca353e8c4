// spillway train: everything that can be refused is refused before the first byte is written, in this order: model, data, plan, run folder.
#include <fmt/format.h>

#include <filesystem>

#include "app/commands.h"
#include "app/freeze.h"
#include "app/signals.h"
#include "app/train.h"
#include "app/trainer.h"
#include "base/error.h"
#include "base/units.h"
#include "data/atomic_folder.h"
#include "models/weights.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

[[noreturn]] void nothing_to_go_on_from(const TrainConfig& config) {
  throw Error(ErrorCode::data,
              fmt::format("[resume] {} holds no complete checkpoint, nor is there a state on nvme, and --resume is must", config.out));
}

// The checkpoint this command goes on from; empty for a new run. Reads only.
std::optional<fs::path> find_start(const TrainConfig& config) {
  const bool holds_run = fs::exists(fs::path(config.out) / "config.json");
  const std::vector<fs::path> all = checkpoints(config.out);
  switch (config.resume.kind) {
    case Resume::Kind::never:
      if (holds_run)
        throw Error(ErrorCode::usage, fmt::format("[resume] {} holds a run and --resume is never: give another --out", config.out));
      return {};
    case Resume::Kind::must:
      if (!holds_run) nothing_to_go_on_from(config);
      break;
    case Resume::Kind::path:
      return fs::path(config.resume.path);
    case Resume::Kind::automatic:
      break;
  }
  return all.empty() ? std::nullopt : std::optional(all.back());
}

void check_same_numbers(const TrainConfig& config, const fs::path& run) {
  const fs::path file = run / "config.json";
  if (!fs::exists(file)) return;
  const std::vector<std::string> changes = number_changes(text_of(file), config);
  if (changes.empty()) return;
  throw Error(
      ErrorCode::usage,
      fmt::format("[resume] the run in {} was started with other values that change numbers: {}; give the same, or --allow-change KEY, "
                  "or another --out",
                  file.parent_path().string(), fmt::join(changes, "; ")));
}

void check_disk(const TrainConfig& config, const Session& session) {
  fs::path at = fs::absolute(config.out);
  while (!fs::exists(at)) at = at.parent_path();
  const i64 each = checkpoint_bytes(session.model(), session.format());
  const i64 more = std::max<i64>(1, config.keep + 1 - static_cast<i64>(checkpoints(config.out).size()));
  const i64 free_bytes = static_cast<i64>(fs::space(at).available);
  const i64 wanted = config.no_final_checkpoint && config.checkpoint_every.unit == Cadence::Unit::seconds ? each : more * each;
  if (free_bytes >= wanted) return;
  throw Error(
      ErrorCode::refused,
      fmt::format("[checkpoint] expected room for {} checkpoints of {} in {}, which has {} free: free some, give another --out, or a "
                  "smaller --keep",
                  more, format_bytes(each), at.string(), format_bytes(free_bytes)));
}

void load_start(Session& session, const TrainConfig& config, const std::optional<fs::path>& start) {
  if (start) return load_checkpoint(*start, session.model(), session.rank());
  std::unique_ptr<models::WeightSource> source;
  if (session.source().has_weights && !config.from_scratch) {
    source = std::make_unique<models::FolderWeights>(session.model(), *session.source().folder);
  } else {
    source = std::make_unique<models::ScratchWeights>(config.seed);
  }
  session.rank().load([&](const nn::Parameter& p, i64 begin, std::span<double> out) { source->read(p, begin, out); });
}

std::string run_id(const std::string& out) {
  return fmt::format("{:08x}", static_cast<u32>(RandomKey{}.derive(fs::weakly_canonical(fs::absolute(out)).string()).value));
}

// Another instruction set sums in another order: the run goes on, but no longer with the bits it would have had.
void note_machine(Progress& progress, Console& console) {
  const std::string here = fmt::format("cpu, {}", optim::to_string(optim::resolve(optim::Isa::best)));
  if (!progress.made_with.empty() && progress.made_with != here) {
    console.warn(fmt::format(
        "the checkpoint was made on another instruction set ({}; here {}): the last bits of the numbers may differ from here on",
        progress.made_with, here));
  }
  progress.made_with = here;
}

// A folder without weights has nothing to load: new weights must be asked for.
void check_weights(const TrainConfig& config, const ModelSource& source) {
  if (!source.folder || source.has_weights || config.from_scratch) return;
  throw Error(
      ErrorCode::usage,
      fmt::format("[model] {} has a config.json but no model.safetensors: give --from-scratch to start from new weights", config.model));
}

offload::Durability durability_of(const TrainConfig& config) {
  return config.durability == Durability::step ? offload::Durability::step : offload::Durability::checkpoint;
}

// What a dead process left on nvme, when it is wanted and further than the checkpoint; else it is forgotten.
std::optional<Record> recover(Session& session, const TrainConfig& config, const Progress& from_checkpoint) {
  parallel::ModelState& state = session.rank().state();
  if (!state.recovered()) return {};
  const bool wanted = config.resume.kind == Resume::Kind::automatic || config.resume.kind == Resume::Kind::must;
  std::optional<Record> record = wanted ? parse_record(*state.recovered()) : std::nullopt;
  if (record && record->progress.step > from_checkpoint.step && record->progress.step <= *config.steps) {
    if (record->numbers_hash != numbers_hash(config)) check_same_numbers(config, config.out);
    return record;
  }
  state.forget_recovered();
  return {};
}

void introduce(Session& session, const TrainConfig& config, Console& console, const Progress& progress, const char* from) {
  console.log(progress.step > 0 ? fmt::format("continues at step {} of {} {} ({})", progress.step, *config.steps, from, config.out)
                                : fmt::format("new run of {} steps ({})", *config.steps, config.out));
  const i64 frozen = frozen_elems(session.model());
  console.log(fmt::format("{}: {} parameters{} in {} blocks, {} on {} thread{}", session.source().name, session.model().parameter_elems(),
                          frozen ? fmt::format(" ({} of them frozen)", frozen) : "", session.model().blocks.size(),
                          to_string(session.dtype()), session.threads(), session.threads() == 1 ? "" : "s"));
  session.print_plan(console);
  if (const std::string line = session.nvme_line(); !line.empty()) console.log(line);
  const bool went_before = fs::exists(fs::path(config.out) / "config.json");
  if (const std::string why = session.rank().state().why_not_recovered(); went_before && !why.empty())
    console.log("nvme: no state to go on from: " + why);
}

}  // namespace

PlanWishes wishes_of(const TrainConfig& config) {
  PlanWishes wishes{.parameters = config.place_parameters,
                    .gradients = config.place_gradients,
                    .optimizer = config.place_optimizer,
                    .activations = config.place_activations,
                    .recompute = config.recompute,
                    .overlap = config.optimizer_overlap,
                    .prefetch = config.prefetch};
  if (config.pipeline_schedule == "1f1b") wishes.order = parallel::Order::micro_batch;
  if (config.pipeline_schedule == "vertical") wishes.order = parallel::Order::vertical;
  return wishes;
}

int run_train(const TrainConfig& given, Console& console) {
  install_stop_handlers();
  TrainConfig config = given;
  ModelSource source = find_model(config.model);
  check_weights(config, source);
  resolve_model(config, source);
  const RunData data = open_data(config, source.config.vocabulary);
  resolve_steps(config, *data.training);
  if (config.out.empty()) config.out = default_out(config);
  const std::optional<fs::path> start = find_start(config);
  Progress progress;
  if (start) {
    progress = read_progress(*start);
    check_same_numbers(config, start->parent_path().parent_path());
  }
  if (start && progress.step >= *config.steps) {
    console.result(fmt::format("finished: {} is at step {} of {}; raise --steps to go on", config.out, progress.step, *config.steps));
    return 0;
  }
  DiskWatch watch;  // outlives the session, whose engine may run on it
  const StateWishes state{config.master_weights, config.moments, config.round_gradients, config.freeze, durability_of(config)};
  Session session(config, std::move(source), run_id(config.out), state);
  session.plan(wishes_of(config), true, config.micro_batches(), config.micro_batch_size, *config.sequence_length, config.decay_all);
  check_disk(config, session);
  RunFolder folder(config.out);
  data::AtomicFolder::remove_stale(folder.path() / "checkpoints");
  session.open(config.trace ? &watch : nullptr);
  const std::optional<Record> recovered = recover(session, config, progress);
  if (recovered) progress = recovered->progress;
  if (config.resume.kind == Resume::Kind::must && !start && !recovered) nothing_to_go_on_from(config);
  note_machine(progress, console);
  introduce(session, config, console, progress, recovered ? "from the state on nvme" : "from the last checkpoint");
  folder.write_config(to_json(config));
  const i64 last_line = folder.open_metrics(progress.step);
  if (recovered && last_line < progress.step) folder.metrics_line(recovered->metrics_line);
  try {
    if (!recovered) load_start(session, config, start);
    if (!recovered) session.rank().state().commit(session.rank().state().generation(), to_record(progress, numbers_hash(config), ""));
    std::optional<Trace> trace;
    if (config.trace) trace.emplace(*config.trace, config.trace_steps, watch);
    return Trainer(config, session, data, folder, console, progress, trace ? &*trace : nullptr).run();
  } catch (...) {
    session.keep_scratch();
    throw;
  }
}

}  // namespace spillway::app

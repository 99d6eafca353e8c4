#include "trainer/run/start.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "data/documents/prepare.h"
#include "data/files/checked_file.h"
#include "data/safetensors/folder_checksums.h"
#include "models/lora.h"
#include "trainer/checkpoints/adapters.h"
#include "trainer/checkpoints/checkpoint_tensors.h"
#include "trainer/checkpoints/deepspeed_state.h"
#include "trainer/settings/given.h"
#include "trainer/settings/weighted_path.h"

namespace spillway::trainer {

namespace fs = std::filesystem;

fs::path run_of(const fs::path& checkpoint) {
  return is_deepspeed_checkpoint(checkpoint) ? fs::path() : checkpoint.parent_path().parent_path();
}

namespace {

std::string text_of(const fs::path& path) { return read_whole(path).value_or(""); }

// Returns the canonical path of the checkpoint that --resume PATH names, so that "X", "X/", "X/." and a link to X are equal.
fs::path named_checkpoint(const TrainConfig& config) { return fs::weakly_canonical(fs::absolute(config.resume.path) / "."); }

// Returns whether the run in --out was itself started from this --resume PATH with the same
// numbers. If so, starting from PATH again would only repeat what the run has computed already.
bool went_on_from_named(const TrainConfig& config, const std::vector<std::string>& same) {
  const std::string before = text_of(fs::path(config.out) / "config.json");
  if (before.empty() || config.resume.kind != Resume::Kind::path) return false;
  const TrainConfig run = run_config(before);
  return run.resume.kind == Resume::Kind::path && named_checkpoint(run) == named_checkpoint(config) &&
         number_changes(before, config, same).empty();
}

// Throws Error(data) if the run's folder has checkpoints but no config.json. Without
// that file it is unknown with which option values the checkpoints were made.
void need_config(const TrainConfig& config) {
  if (fs::exists(fs::path(config.out) / "config.json") || checkpoints(config.out).empty()) return;
  throw Error(
      ErrorCode::data,
      fmt::format("[resume] expected the run's config.json beside the checkpoints in {}, got none: put it back, name a checkpoint with "
                  "--resume PATH, or give another --out",
                  config.out));
}

// Returns the folder of the run to continue. For --resume PATH this is the run to which the checkpoint belongs.
fs::path run_before(const TrainConfig& config) {
  return config.resume.kind == Resume::Kind::path ? run_of(named_checkpoint(config)) : fs::path(config.out);
}

// Sets `start` to the newest checkpoint whose manifest can be read. If `last` is given, only checkpoints before
// `last` are considered. If there is no such checkpoint, uses the checkpoint of --resume PATH, if PATH was given.
void take_newest_before(const TrainConfig& config, const std::optional<fs::path>& last, Start& start) {
  std::vector<fs::path> all = checkpoints(config.out);
  while (last && !all.empty() && all.back() >= *last) all.pop_back();
  for (start.checkpoint.reset(), start.progress = {}; !all.empty(); all.pop_back()) {
    try {
      start.progress = read_progress(all.back());
      start.checkpoint = all.back();
      return;
    } catch (const data::Damaged& e) {
      start.left.emplace_back(all.back(), e.wrong());
    } catch (const Error& e) {
      if (e.code() != ErrorCode::io) throw;
      start.left.emplace_back(all.back(), fmt::format("{} cannot be read: {}", all.back().string(), e.what()));
    }
  }
  if (config.resume.path.empty()) return;
  start.checkpoint = named_checkpoint(config);  // the run began from the checkpoint of --resume PATH and died before its own first save
  start.progress = read_progress(*start.checkpoint);
}

bool is_checkpoint(const fs::path& path) {
  return is_deepspeed_checkpoint(path) || fs::exists(path / data::kManifestName) || fs::exists(path / kStateName);
}

// Checks the checkpoint of --resume PATH. Not called if the run already
// resumes from a checkpoint of its own, since PATH may no longer exist then.
void check_named(const TrainConfig& config) {
  const fs::path path = named_checkpoint(config);
  if (is_checkpoint(path)) return;
  const std::vector<fs::path> all = checkpoints(path);
  const std::string got = !fs::exists(path)         ? "which does not exist"
                          : !fs::is_directory(path) ? "which is a file"
                          : all.empty()             ? "which is a folder without manifest.json"
                                        : fmt::format("which is a run folder: its newest checkpoint is {}", all.back().string());
  throw Error(ErrorCode::data,
              fmt::format("[--resume] expected a checkpoint (a run's checkpoints/step-00000100, or a folder that DeepSpeed "
                          "saved), or auto, must or never, got {}, {}",
                          config.resume.path, got));
}

std::string legal_ranks(i64 global_batch, i64 micro_batch_size) {
  std::vector<i64> legal;
  for (i64 ranks = 1; ranks * micro_batch_size <= global_batch; ++ranks) {
    if (global_batch % (ranks * micro_batch_size) == 0) legal.push_back(ranks);
  }
  return fmt::format("{}", fmt::join(legal, ", "));
}

}  // namespace

i64 keep_global_batch(TrainConfig& config) {
  if (config.resume.kind == Resume::Kind::path && !is_checkpoint(named_checkpoint(config))) return config.ranks;
  const fs::path file = run_before(config) / "config.json";
  if (run_before(config).empty() || config.resume.kind == Resume::Kind::never || !fs::exists(file)) return config.ranks;
  const TrainConfig before = run_config(text_of(file));
  if (before.data_ranks() == config.data_ranks() || config.global_batch_size) return before.ranks;
  const i64 batch = before.global_batch();
  if (batch % (config.micro_batch_rows() * config.data_ranks()) != 0) {
    throw Error(ErrorCode::usage,
                fmt::format("[resume] the run's global batch of {} does not divide over {} data-parallel ranks with --micro-batch-size {}; "
                            "legal numbers of ranks: {}",
                            batch, config.data_ranks(), config.micro_batch_rows(), legal_ranks(batch, config.micro_batch_rows())));
  }
  config.gradient_accumulation_steps.reset();
  config.global_batch_size = batch;
  return before.ranks;
}

void nothing_to_go_on_from(const TrainConfig& config) {
  throw Error(ErrorCode::data, fmt::format("[resume] {} holds no complete checkpoint and there is no state on nvme, but --resume is must: "
                                           "give --resume auto to start a new run",
                                           config.out));
}

void settle_resume(TrainConfig& config, const std::vector<std::string>& same) {
  if (config.resume.kind != Resume::Kind::path) return;
  config.resume.path = named_checkpoint(config).string();
  if (went_on_from_named(config, same)) config.resume.kind = Resume::Kind::automatic;
}

Start find_start(const TrainConfig& config) {
  const bool holds_run = fs::exists(fs::path(config.out) / "config.json");
  Start start;
  switch (config.resume.kind) {
    case Resume::Kind::never:
      if (holds_run)
        throw Error(ErrorCode::usage, fmt::format("[resume] {} holds a run and --resume is never: give another --out", config.out));
      return start;
    case Resume::Kind::must:
      need_config(config);
      if (!holds_run) nothing_to_go_on_from(config);
      if (const std::vector<fs::path> all = checkpoints(config.out); !all.empty()) start.checkpoint = all.back();
      break;
    case Resume::Kind::path:
      check_named(config);
      start.checkpoint = named_checkpoint(config);
      break;
    case Resume::Kind::automatic:
      need_config(config);
      take_newest_before(config, {}, start);
      return start;
  }
  if (start.checkpoint) start.progress = read_progress(*start.checkpoint);
  return start;
}

Start find_whole(const TrainConfig& config, Start start) {
  while (start.checkpoint) {
    const std::vector<std::string> damage = damage_of_checkpoint(*start.checkpoint);
    if (damage.empty()) break;
    const bool named = !config.resume.path.empty() && *start.checkpoint == named_checkpoint(config);
    if (named || config.resume.kind != Resume::Kind::automatic) throw data::Damaged(*start.checkpoint, damage.front());
    const std::string more = damage.size() > 1 ? fmt::format(" (and {} more places)", damage.size() - 1) : "";
    start.left.emplace_back(*start.checkpoint, damage.front() + more);
    take_newest_before(config, std::optional(*start.checkpoint), start);
  }
  return start;
}

void nothing_whole(const TrainConfig& config, const Start& start) {
  throw Error(ErrorCode::data, fmt::format("[resume] {} has {} checkpoint{}, and none is intact: {}; nothing was changed. Give an intact "
                                           "copy with --resume PATH, or start a new run with another --out",
                                           config.out, start.left.size(), start.left.size() == 1 ? "" : "s", start.left.front().second));
}

void check_same_numbers(const TrainConfig& config, const fs::path& run, const std::vector<std::string>& same) {
  const fs::path file = run / "config.json";
  if (run.empty() || !fs::exists(file)) return;
  const std::vector<std::string> changes = number_changes(text_of(file), config, same);
  if (changes.empty()) return;
  throw Error(ErrorCode::usage, fmt::format("[resume] the run in {} was started with other values of options that change numbers: {}; give "
                                            "the same values, or --allow-change KEY, "
                                            "or another --out",
                                            file.parent_path().string(), fmt::join(changes, "; ")));
}

Recovery recoverable(Session& session, const TrainConfig& config, const Progress& from_checkpoint, const std::vector<std::string>& same) {
  parallel::ModelState& state = session.rank().state();
  if (!state.recovered()) return {};
  std::optional<Record> record = parse_record(*state.recovered());
  if (!record) return {.set_aside = "no record says which run and step it belongs to"};
  const i64 step = record->progress.step;
  const auto aside = [&](const std::string& why) { return Recovery{.set_aside = fmt::format("it is from step {}, and {}", step, why)}; };
  if (config.resume.kind == Resume::Kind::never || config.resume.kind == Resume::Kind::path)
    return aside("--resume asks for another start");
  if (record->progress.standing.diverged)
    return {.written_over =
                fmt::format("of step {} is discarded: the run ended at this step because its loss or gradients were not finite", step)};
  if (step <= from_checkpoint.step)
    return {.written_over = fmt::format("of step {} is discarded: there is a checkpoint of step {}", step, from_checkpoint.step)};
  if (step > *config.steps) {
    throw Error(ErrorCode::usage,
                fmt::format("[resume] the run's state on nvme is from step {}, but --steps is {}: give --steps {} or more to "
                            "continue from it, or another --out; nothing was changed",
                            step, *config.steps, step));
  }
  if (record->numbers_hash != numbers_hash(config)) {
    if (!fs::exists(fs::path(config.out) / "config.json"))
      return aside("it was made with other option values, and the run folder that recorded them is gone");
    check_same_numbers(config, config.out, same);
  }
  return {.record = std::move(record)};
}

void load_weights(parallel::Rank& rank, const models::WeightSource& source) {
  rank.load([&](const nn::Parameter& p, i64 begin, std::span<double> out) { source.read(p, begin, out); }, {},
            [&](const nn::Parameter& p, i64 begin, DType dtype, std::span<std::byte> out) {
              if (!source.is_stored_as(p, dtype)) return false;
              source.read_as(p, begin, dtype, out);
              return true;
            });
}

FreezeChange load_start(Session& session, const TrainConfig& config, const Start& start) {
  if (start.checkpoint) return load_checkpoint(*start.checkpoint, session.source(), session.model(), session.rank());
  std::unique_ptr<models::WeightSource> source = std::make_unique<models::ScratchWeights>(config.seed);
  if (session.source().has_weights && !config.from_scratch) {
    auto loaded = weights_of(session.source(), session.model());
    const bool new_adapters = session.source().config.lora && !session.source().adapter;
    source = new_adapters ? std::make_unique<models::AdaptedWeights>(std::move(loaded), std::move(source)) : std::move(loaded);
  }
  load_weights(session.rank(), *source);
  return {};
}

}  // namespace spillway::trainer

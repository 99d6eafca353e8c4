#include "trainer/resume/left_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "base/error.h"
#include "data/files/file.h"
#include "offload/left_store.h"
#include "trainer/settings/run_settings.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;

struct Left {
  fs::path folder;
  Record record;
  std::string unlike;  // why this start would not continue from the state on nvme; empty if it would
};

// Returns the canonical path of a scratch path, so that different spellings of one folder are equal.
std::string place_of(const ScratchPath& path) { return fs::weakly_canonical(fs::absolute(path.path)).string(); }

// Returns the scratch paths that this start of the run names and those with which the run was started before.
std::set<std::string> scratch_paths(const Session& session, const TrainConfig& before) {
  std::set<std::string> paths;
  for (const auto* all : {&session.nvme().paths, &before.nvme}) {
    for (const ScratchPath& path : *all) paths.insert(place_of(path));
  }
  return paths;
}

// Returns why this rank would not continue from its own files on the scratch path `path`. The result is empty if it would.
std::string unlike(const Session& session, const TrainConfig& config, const std::string& path, const offload::LeftStore& left) {
  const std::vector<ScratchPath>& used = session.nvme().paths;
  if (!session.chosen().recoverable()) return "with these flags not all weights and optimizer state are stored on nvme";
  if (used.empty() || place_of(used.front()) != path) return "--nvme names other paths, or the same paths in another order";
  if (left.stripes != used.size()) return "--nvme names more or fewer paths";
  if (left.durability != config.durability) return "it was made with another --durability";
  const offload::StoreDescription& wanted = session.chosen().store;
  if (left.layout_hash != wanted.layout_hash || left.persistent_tiles != wanted.persistent_tiles)
    return "its files have another layout: the model, the placement or the data types of the state differ";
  return "";
}

// Returns the description of the state files in the folder. Returns nothing if it cannot be read, because that error is reported when the
// files are opened later.
std::optional<offload::LeftStore> store_in(const fs::path& folder) try { return offload::left_store(folder); } catch (const Error&) {
  return {};
}

// Returns the newest state that a dead process of this run committed on the scratch paths. Of several states of the same step, one from
// which this start would continue is preferred. States that belong to other ranks of this start are skipped, since those ranks check them.
std::optional<Left> newest_left(const Session& session, const TrainConfig& config, const TrainConfig& before) {
  const ScratchId& id = session.scratch_id();
  std::optional<Left> newest;
  for (const std::string& path : scratch_paths(session, before)) {
    for (const offload::Orphan& orphan : id.all_left_behind(path)) {
      const bool mine = orphan.run == id.mine();
      if (orphan.set_aside || (!mine && id.has(orphan.name))) continue;
      const auto store = store_in(fs::path(path) / orphan.name);
      const auto record = store ? parse_record(store->record) : std::nullopt;
      if (!record) continue;
      Left left{fs::path(path) / orphan.name, *record,
                mine ? unlike(session, config, path, *store) : "it was made with another number of ranks"};
      const i64 step = record->progress.step, so_far = newest ? newest->record.progress.step : -1;
      if (step > so_far || (step == so_far && left.unlike.empty())) newest = std::move(left);
    }
  }
  return newest;
}

}  // namespace

LeftState check_left_state(const Session& session, const TrainConfig& config, const Progress& from_checkpoint,
                           const std::vector<std::string>& same) {
  const bool goes_on = config.resume.kind == Resume::Kind::automatic || config.resume.kind == Resume::Kind::must;
  const auto text = read_whole(fs::path(config.out) / "config.json");
  if (!goes_on || !text) return {};
  const std::optional<Left> left = newest_left(session, config, run_config(*text));
  if (!left) return {};
  const i64 step = left->record.progress.step;
  if (step <= from_checkpoint.step) return {};
  if (left->record.numbers_hash != numbers_hash(config)) check_same_numbers(config, config.out, same);
  if (left->unlike.empty()) return {};
  const std::string state = fmt::format("the state of step {} on nvme ({})", step, left->folder.string());
  TrainConfig strict = config;
  strict.allow_change.clear();
  if (!number_changes(*text, strict, same).empty())
    return {.note = fmt::format("{} was made before the --allow-change: it is saved as a checkpoint first", state), .save_step = step};
  if (from_checkpoint.step > 0)
    return {.note = fmt::format("{} is newer than the checkpoint of step {}, but this start cannot continue from it: {}", state,
                                from_checkpoint.step, left->unlike)};
  throw Error(
      ErrorCode::usage,
      fmt::format(
          "[resume] {} is the only saved state of the run in {}, and these flags cannot continue from it: {}. Give the flags that the run "
          "was started with (see its config.json), with --steps {} to save a checkpoint that any placement can continue from, or "
          "another --out for a new run; nothing was changed",
          state, config.out, left->unlike, step));
}

TrainConfig saving_config(const TrainConfig& config, i64 step) {
  TrainConfig before = run_config(read_whole(fs::path(config.out) / "config.json").value_or(""));
  before.out = config.out;
  before.steps = step;
  before.resume = {};
  before.run->no_final_checkpoint = false;
  before.keep_schedule = true;
  before.run->trace.reset();
  return before;
}

void tell_of_nvme(Session& session, const TrainConfig& config, Messages& messages, const Recovery& recovery) {
  const parallel::ModelState& state = session.rank().state();
  if (const std::string line = session.nvme_line(); !line.empty()) messages.log(line);
  if (const std::string notice = session.nvme_lock_notice(); !notice.empty()) messages.warn("nvme: " + notice);
  const bool went_before = fs::exists(fs::path(config.out) / "config.json");
  const std::string why = state.why_not_recovered(), moved = state.store_moved();
  if (!recovery.set_aside.empty()) {
    messages.warn("nvme: the run does not continue from the stored state: " + recovery.set_aside);
  } else if (!why.empty() && (went_before || !moved.empty())) {
    messages.log("nvme: there is no state to continue from: " + why);
  }
  if (!moved.empty()) messages.warn("nvme: " + moved);
  if (!recovery.damaged.empty()) messages.warn("nvme: the stored state is damaged, so the run continues without it: " + recovery.damaged);
  if (!recovery.written_over.empty()) messages.log("nvme: the stored state " + recovery.written_over);
}

}  // namespace spillway::trainer

// Identifies the files that a run reads by their contents, not by their paths. A run may continue with the same bytes at another path (in a
// job's own scratch folder, by an absolute path, through a link), but not with other bytes at the same path. Checksums of the contents are
// stored in RUN/contents.json at each start. Called by train on rank 0; only reads files. The types are plain values; not thread-safe.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "trainer/checkpoints/checkpoint.h"
#include "trainer/run/data_sources.h"

namespace spillway::trainer {

struct RunContents {
  /// `of` holds checksums as text. Its keys are those of the configuration: model, data, tokenizer, chat_template,
  /// adapter, validation_data. A key is absent if the contents of its files are not known, or if its flag names no file.
  std::map<std::string, std::string> of;
  std::vector<Thaw> thawed;  // parameters that the run froze at first and trains in its newest state (thaw.h)

  std::string find(const std::string& key) const;  // returns the checksums of a key; empty if not known
};

constexpr const char* kContentsName = "contents.json";
std::string to_json(const RunContents& contents);
/// Parses contents.json. Throws nlohmann's exceptions if the text is not JSON with the expected keys and types.
RunContents parse_contents(const std::string& json);

/// Returns the contents of the files that `config` names. `data` is the opened training data.
/// Files that cannot be read now are left out, because the run may no longer need them.
RunContents contents_now(const TrainConfig& config, const ModelSource& source, const RunData& data);
/// Returns the contents that the run in the folder `run` recorded. `progress` belongs to the state to continue from. An
/// older program recorded only the contents of the data, in `progress`. For a run of such a program the other contents
/// are those of the files that are now at the paths in config.json. Throws Error(data) if contents.json is damaged.
RunContents contents_of_run(const std::filesystem::path& run, const Progress& progress);

/// Returns the keys whose files have the same contents in `before` and `now`. For these keys the values in `config` may differ from those
/// in the run's config.json.
std::vector<std::string> same_contents(const std::filesystem::path& run, const TrainConfig& config, const RunContents& before,
                                       const RunContents& now);
/// Checks that `config` may continue the run in the folder `run`, whose state has the progress `progress`. Throws Error(usage) if a
/// flag names other contents, or another key that changes numbers has another value, unless --allow-change names the key. Returns
/// lines for the log about paths that are spelled in another way, about changed contents that --allow-change accepts, and about
/// changed validation data. Contents that are missing in `now` are filled in from the run's record. Does nothing if `run` is empty.
std::vector<std::string> check_same_run(const std::filesystem::path& run, const TrainConfig& config, const Progress& progress,
                                        RunContents& now);

/// Returns the run folder of a command without --out. By default this is default_out(), whose name depends on the
/// flags, also on the spelling of paths. If that folder has no run, but a folder beside it has a run with the
/// same settings and the same contents at paths that are spelled in another way, that folder is returned instead.
std::string find_out(const TrainConfig& config, const RunContents& now);

}  // namespace spillway::trainer

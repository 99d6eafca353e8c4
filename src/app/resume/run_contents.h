// What a run reads at the paths of its flags, by contents: a run goes on with the same bytes at another path (a job's own scratch, an
// absolute path, a link), and not with other bytes at the same one. Recorded in RUN/contents.json at each start. Called by train on the
// first rank; reads files only. Values; one thread.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "app/checkpoints/checkpoint.h"
#include "app/run/data_sources.h"

namespace spillway::app {

struct RunContents {
  /// By key of the configuration (model, data, tokenizer, chat_template, adapter, validation_data) a checksum text of what lies there. A
  /// key that is absent is not known, or its flag names no file.
  std::map<std::string, std::string> of;
  std::vector<Thaw> thawed;  // of the run's newest state

  std::string find(const std::string& key) const;  // empty: not known
};

constexpr const char* kContentsName = "contents.json";
std::string to_json(const RunContents& contents);
/// Throws nlohmann's exceptions where the text is none of ours.
RunContents parse_contents(const std::string& json);

/// Of what `config` names. `data`: what was opened there. What cannot be read now, though the run may not need it any more, is left out.
RunContents contents_now(const TrainConfig& config, const ModelSource& source, const RunData& data);
/// Of the run in that folder: what it recorded. Of a run of an older program, which recorded the data alone (`progress`, of the state that
/// is gone on from): what lies now at the paths of its config.json. Error(data): its contents.json is damaged.
RunContents contents_of_run(const std::filesystem::path& run, const Progress& progress);

/// The keys whose values in `config` may be spelled otherwise than in the run's config.json, since the same contents lie there.
std::vector<std::string> same_contents(const std::filesystem::path& run, const TrainConfig& config, const RunContents& before,
                                       const RunContents& now);
/// Error(usage) where `config` is not that of the run in this folder, which stands at `progress`: a flag names other contents, or another
/// key changes numbers, and --allow-change names neither. Returns lines to be said: of paths that are spelled otherwise, of contents that
/// --allow-change takes, of other validation data. What is not known of `now` stays as it was. Nothing to do for a `run` that is empty.
std::vector<std::string> check_same_run(const std::filesystem::path& run, const TrainConfig& config, const Progress& progress,
                                        RunContents& now);

/// Where the run of this command lies that gives no --out: default_out(), or, where there is none yet, the folder beside it of a run with
/// the same numbers and contents, whose paths were spelled otherwise.
std::string find_out(const TrainConfig& config, const RunContents& now);

}  // namespace spillway::app

// Tells which numbers of a run that an older program began are computed by other rules from here on (kNumberRules), and which notes on the
// model train prints in its first lines. Pure functions, except that they read config.json files.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "app/checkpoints/checkpoint.h"

namespace spillway::app {

/// The source of a run that goes on from `checkpoint`: where an older program began the run with a tied head, its weights and state have no
/// other, so the head stays tied, and the source's notes say so. Error(data): a config.json that cannot be read.
void keep_tied_head(const std::filesystem::path& checkpoint, const Progress& progress, ModelSource& source);

/// Returns the notes on the trained model that train prints, a sentence each.
std::vector<std::string> model_notes(const ModelSource& source, const nn::Sequential& model);

/// Returns what the coming steps compute by other rules than the steps before, a sentence each. It is empty if the run was begun by the
/// rules of this program.
std::vector<std::string> changed_rules(const Progress& progress, const ModelSource& source, const nn::Sequential& model);

}  // namespace spillway::app

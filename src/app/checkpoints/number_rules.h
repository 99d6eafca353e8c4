// What a run that an older program began computes otherwise from here on (kNumberRules), and what a folder's model makes a command say in
// its first lines. For train. Pure functions but for reading config.json files.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "app/checkpoints/checkpoint.h"

namespace spillway::app {

/// The source of a run that goes on from `checkpoint`: where an older program began the run with a tied head, its weights and state have no
/// other, so the head stays tied, and the source's notes say so. Error(data): a config.json that cannot be read.
void keep_tied_head(const std::filesystem::path& checkpoint, const Progress& progress, ModelSource& source);

/// What is to be known of the model that is trained, a sentence each.
std::vector<std::string> model_notes(const ModelSource& source, const nn::Sequential& model);

/// What the steps to come compute otherwise than those before, a sentence each; none of a run that this program's rules began.
std::vector<std::string> changed_rules(const Progress& progress, const ModelSource& source, const nn::Sequential& model);

}  // namespace spillway::app

// Reports which numbers change when this program resumes a run that an older program began, because some rules of computing them have
// changed (kNumberRules). Also makes the notes on the model that train prints first. The functions are pure, except that they read
// config.json files.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "trainer/checkpoints/checkpoint.h"

namespace spillway::trainer {

/// Keeps the output head tied to the embedding in `source`, and adds a note to `source`, if an older
/// program began the run with a tied head. The head must stay tied, because `checkpoint` has no weights
/// and no optimizer state for a separate head. Throws Error(data) if a config.json cannot be read.
void keep_tied_head(const std::filesystem::path& checkpoint, const Progress& progress, ModelSource& source);

/// Returns the notes on the trained model that train prints. Each note is a sentence.
std::vector<std::string> model_notes(const ModelSource& source, const nn::Sequential& model);

/// Returns a sentence for each number that the coming steps compute by other rules than
/// the steps before. The result is empty if the run was begun by this program's rules.
std::vector<std::string> changed_rules(const Progress& progress, const ModelSource& source, const nn::Sequential& model);

}  // namespace spillway::trainer

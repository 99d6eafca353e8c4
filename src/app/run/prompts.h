// What a text is to follow, as tokens: prompts as they are, and conversations through the model's chat template.
#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoints/model_source.h"
#include "app/flags/config.h"
#include "data/chat/chat_template.h"
#include "data/rows/row.h"
#include "data/tokenizer/tokenizer.h"

namespace spillway::app {

/// Conversations as the model was trained on them. Const; thread-safe.
class Conversations {
 public:
  /// Of --chat-template, a file or a name, or else the template of the tokenizer's folder. Error(usage) where there is none; Error(data)
  /// for one that cannot be read.
  Conversations(const WritingConfig& config, const ModelSource& source, std::shared_ptr<const data::Tokenizer> tokenizer);
  /// Up to where the model is to answer, with a row's own variables (tools, documents…) or without any. Error(data): what the template
  /// refuses.
  std::vector<i32> tokens(const nlohmann::ordered_json& messages) const;
  std::vector<i32> tokens(const data::Row& row) const;

 private:
  std::shared_ptr<const data::Tokenizer> tokenizer_;
  std::shared_ptr<const data::ChatTemplate> template_;
  std::shared_ptr<const nlohmann::ordered_json> variables_;
};

struct Prompt {
  std::string text;  // as it was given, or the messages in JSON
  std::vector<i32> tokens;
};

struct PromptFile {
  std::vector<Prompt> prompts;
  std::vector<std::string> notes;  // a line for each key of its rows that is not read
};

/// A prompt as `tokenizer(text)` of transformers gives it (data::encode_with_around). Of a file, plain or packed by gzip or zstd: a prompt
/// a line; of .jsonl a line each {"prompt": TEXT} or {"messages": […]}, the latter with `tools`, `documents` and `chat_template_kwargs` as
/// training's rows have them. Error(data) names the line; Error(usage) where messages come and there is no template, for no prompt at all
/// and for tokens at or above the vocabulary.
PromptFile read_prompts(const std::string& path, const WritingConfig& config, const ModelSource& source,
                        const std::shared_ptr<const data::Tokenizer>& tokenizer);

}  // namespace spillway::app

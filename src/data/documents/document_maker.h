// DocumentMaker turns a line of fine-tuning data into tokens for training, and marks which of them contribute to the loss. All member
// functions are const and thread-safe.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/rows/row.h"
#include "data/template/chat_template.h"
#include "data/tokenizer/tokenizer.h"

namespace spillway::data {

/// Selects which tokens are targets of the loss. `by_layout` decides by the row's layout: in a text all tokens, in a prompt
/// with completion the completion, in a conversation the assistant's messages, and in a row of tokens the labelled ones.
enum class LossOn : u8 { by_layout, all, completion, assistant };

struct Document {
  std::vector<i32> ids;
  std::vector<u8> counted;  // for each token, 1 if it is a target; the first token of a document never is
  // The positions at which the documents after the first begin, ascending and without 0, if the
  // row of data already packs several documents. The tokens at these positions are no targets.
  std::vector<u32> begins{};
  std::vector<std::string> unread{};  // keys of the line that this program does not use (Row::unread)
};

struct DocumentOptions {
  std::optional<RowLayout> layout;  // the layout of all lines; without a value, each line's layout is recognised by its keys
  LossOn loss_on = LossOn::by_layout;
  // The token to append to each text and completion that does not end with it.
  // Conversations do not get this token: their chat template writes their end.
  std::optional<i32> end_token;
};

class DocumentMaker {
 public:
  /// Creates a maker. `chat` is the template of conversations, and `variables` holds the values that the
  /// template reads (special_token_variables). If `chat` has no value, make() refuses conversations.
  DocumentMaker(std::shared_ptr<const Tokenizer> tokenizer, std::optional<ChatTemplate> chat,
                std::shared_ptr<const nlohmann::ordered_json> variables, const DocumentOptions& options);
  ~DocumentMaker();

  /// Turns a line into a document. A text gets the tokens that the tokenizer puts around a text (encode_with_around), and then the end
  /// token, unless the text already ends with that token. A prompt with its completion is treated as one text. A token counts as part of
  /// the completion if it shares a byte with it, even if the token also holds the end of the prompt. This agrees with TRL's SFTTrainer,
  /// where the completion begins at the first token that differs between the prompt alone and the prompt with its completion.
  ///
  /// A conversation becomes the text that the chat template writes; the tokenizer's own special tokens are not added. The targets are
  /// the template's generation blocks. If the template has no such blocks, the targets are what each assistant message adds to the
  /// conversation before it, where that conversation is rendered with the generation prompt. Rows of tokens are taken unchanged, without
  /// an end token. Throws Error(data) with file and line if the line is not a valid row, if the template raises an error, or if a later
  /// message changes how earlier messages are rendered.
  Document make(std::string_view line, const std::string& file, i64 line_number) const;

  /// Returns the tokens that are put before and after each text, including the end token.
  Around around_texts() const;

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const DocumentOptions& options() const { return options_; }

 private:
  Document of_text(const std::string& text) const;
  Document of_completion(const Row& row) const;
  Document of_tokens(const Row& row) const;
  Document of_messages(const Row& row, const std::string& where) const;
  void put_around(Document& document) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
  std::shared_ptr<const nlohmann::ordered_json> variables_;
  const DocumentOptions options_;
  std::string end_text_;  // the text that the tokenizer encodes as the end token alone; empty if there is none
};

}  // namespace spillway::data

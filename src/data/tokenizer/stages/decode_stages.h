// Creates the stages of decoder.h, with one function for each kind of stage.
// Each stage changes tokens as the Hugging Face decoder of its name does.
#pragma once
#include <memory>

#include "data/tokenizer/stages/decoder.h"
#include "data/tokenizer/stages/pattern.h"

namespace spillway::data {

using StageOwner = std::unique_ptr<DecodeStage>;

/// Returns a stage that joins tokens with spaces.
StageOwner join_stage(DecodeStage& next);
/// Returns a stage that replaces byte characters (byte_level.h) by the bytes that they stand for, and
/// joins all tokens into one UTF-8 text. A token that contains any other character is kept as it is.
StageOwner byte_level_stage(DecodeStage& next);
/// Returns a stage that replaces runs of <0xNN> tokens by the text that their bytes form.
/// If the bytes of a run are not UTF-8 as a whole, each token of the run becomes U+FFFD.
StageOwner byte_fallback_stage(DecodeStage& next);
/// Returns a stage that concatenates all tokens into one.
StageOwner fuse_stage(DecodeStage& next);
/// Returns a stage that removes up to `start` occurrences of the character
/// `content` from the beginning of each token, and up to `stop` from its end.
StageOwner strip_stage(DecodeStage& next, char32_t content, i64 start, i64 stop);
StageOwner replace_stage(DecodeStage& next, std::shared_ptr<const Pattern> pattern, const std::string& content);
/// Returns a stage that replaces each `replacement` character by a space. If
/// `drop_first` is set, the first token's replacement characters are removed instead.
StageOwner metaspace_stage(DecodeStage& next, char32_t replacement, bool drop_first);
StageOwner word_piece_stage(DecodeStage& next, const std::string& prefix, bool cleanup);
/// Returns a stage that replaces the suffix in each token by a space. In the last token the suffix is removed instead.
StageOwner suffix_stage(DecodeStage& next, const std::string& suffix);

}  // namespace spillway::data

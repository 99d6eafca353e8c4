// Factories for the stages of decoder.h, one for each kind. Each stage treats tokens as the Hugging Face decoder of the same name does.
#pragma once
#include <memory>

#include "data/tokenizer/decoder.h"
#include "data/tokenizer/pattern.h"

namespace spillway::data {

using StageOwner = std::unique_ptr<DecodeStage>;

/// Joins tokens with spaces.
StageOwner join_stage(DecodeStage& next);
/// Turns byte characters (byte_level.h) into bytes and all tokens into one UTF-8 text. A token that contains other characters too is taken
/// as it is.
StageOwner byte_level_stage(DecodeStage& next);
/// Turns runs of <0xNN> tokens into text. If a run as a whole is not UTF-8, each of its tokens becomes U+FFFD.
StageOwner byte_fallback_stage(DecodeStage& next);
/// Concatenates all tokens into one.
StageOwner fuse_stage(DecodeStage& next);
/// Removes up to `start` of this character from the beginning of each token and up to `stop` from its end.
StageOwner strip_stage(DecodeStage& next, char32_t content, i64 start, i64 stop);
StageOwner replace_stage(DecodeStage& next, std::shared_ptr<const Pattern> pattern, const std::string& content);
/// Turns the replacement character into a space. In the first token it is removed instead if `drop_first` is set.
StageOwner metaspace_stage(DecodeStage& next, char32_t replacement, bool drop_first);
StageOwner word_piece_stage(DecodeStage& next, const std::string& prefix, bool cleanup);
/// Turns the suffix into a space; in the last token it is removed.
StageOwner suffix_stage(DecodeStage& next, const std::string& suffix);

}  // namespace spillway::data

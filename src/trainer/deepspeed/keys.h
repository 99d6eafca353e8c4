// Defines the table of DeepSpeed's configuration keys (https://www.deepspeed.ai/docs/config-json and the
// configuration classes of version 0.19), which says how each key is handled. The table is immutable; thread-safe.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace spillway::trainer {

enum class Treatment {
  same,     // the key is a flag of Spillway under another name, with the same value
  read,     // code in deepspeed.cc or optimizer.cc translates the key
  noted,    // the key has no effect in Spillway; a note says why
  refused,  // the key is an error, unless its value does not ask for the feature
};

struct DeepspeedKey {
  std::string_view path;  // such as "zero_optimization.stage"; "nebula.*" stands for all keys inside nebula
  Treatment treatment;
  std::string_view words;  // depends on the treatment; same: the name of the flag; noted: the reason; refused: what to use instead
  // for a key that is refused: JSON values that are accepted because they do not ask for the feature, separated by |
  std::string_view nothing;
};

/// Returns the table's entry for a key. Returns null if DeepSpeed has no such key.
const DeepspeedKey* find_deepspeed_key(std::string_view path);
/// Returns whether `path` is a section, that is, whether there are keys inside it.
bool is_deepspeed_section(std::string_view path);
/// Returns the known key whose spelling is nearest to `path`. The result is empty if no key is near.
std::string nearest_deepspeed_key(const std::string& path);

}  // namespace spillway::trainer

#include "data/tokenizer/vocabulary.h"

#include <cstring>
#include <nlohmann/json.hpp>

namespace spillway::data {

u64 hash_of(std::string_view bytes) {
  u64 hash = 0x9E3779B97F4A7C15u ^ bytes.size();
  const auto mix = [&](u64 word) {
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  };
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    u64 word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    mix(word);
  }
  u64 word = 0;
  for (size_t i = at; i < bytes.size(); ++i) word |= static_cast<u64>(static_cast<unsigned char>(bytes[i])) << (8 * (i - at));
  mix(word);
  mix(0);
  return hash;
}

Vocabulary Vocabulary::read(const nlohmann::json& value, const JsonPlace& place) {
  if (!value.is_object()) refuse_json(place, "an object of tokens and ids", value);
  Vocabulary vocabulary;
  const i64 most = 2 * static_cast<i64>(value.size()) + 65536;
  for (const auto& [text, id] : value.items()) {
    const std::string expected = "ids from 0 to " + std::to_string(most);
    const auto whole = whole_number(id, most);
    if (!whole) refuse_json(place, expected, id);
    const auto number = static_cast<i32>(*whole);
    if (vocabulary.has(number)) refuse_json(place, "each id only once", id);
    if (!vocabulary.add(text, number)) refuse_value(place, "tokens with different hashes", "hundreds with the same hash");
  }
  return vocabulary;
}

size_t Vocabulary::slot_of(std::string_view wanted) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = static_cast<size_t>(hash_of(wanted)) & mask;
  while (slots_[slot] != kNoToken && text(slots_[slot]) != wanted) slot = (slot + 1) & mask;
  return slot;
}

bool Vocabulary::add(std::string_view token, i32 id) {
  if (2 * (size_ + 1) > static_cast<i64>(slots_.size())) grow();
  if (static_cast<size_t>(id) >= places_.size()) places_.resize(static_cast<size_t>(id) + 1);
  places_[static_cast<size_t>(id)] = {arena_.size(), static_cast<i64>(token.size())};
  arena_ += token;
  longest_ = std::max(longest_, static_cast<i64>(token.size()));
  const size_t slot = slot_of(token), tries = (slot - static_cast<size_t>(hash_of(token))) & (slots_.size() - 1);
  if (slots_[slot] == kNoToken) ++size_;
  slots_[slot] = id;
  return tries <= kMostTries;
}

void Vocabulary::grow() {
  std::vector<i32> old(2 * slots_.size(), kNoToken);
  old.swap(slots_);
  for (const i32 id : old) {
    if (id != kNoToken) slots_[slot_of(text(id))] = id;
  }
}

i32 Vocabulary::find(std::string_view token) const { return slots_[slot_of(token)]; }

std::string_view Vocabulary::text(i32 id) const {
  if (!has(id)) return {};
  const Place& place = places_[static_cast<size_t>(id)];
  return std::string_view(arena_).substr(place.offset, static_cast<size_t>(place.length));
}

std::string byte_token(unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

}  // namespace spillway::data

#include "parallel/sockets/attendee.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace spillway::parallel {
namespace {

constexpr const char* kRoster = "all";
constexpr size_t kBefore = 2;  // number of words in a roster before the words of the first rank

}  // namespace

int to_number(const std::string& text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

std::string rank_names(const std::vector<int>& ranks) {
  constexpr size_t kNamed = 16;
  const std::vector<int> some(ranks.begin(), ranks.begin() + static_cast<i64>(std::min(ranks.size(), kNamed)));
  return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s", fmt::join(some, ", "),
                     ranks.size() > kNamed ? fmt::format(" and {} more", ranks.size() - kNamed) : "");
}

void Attendee::put(Words& words) const { words.insert(words.end(), {host, node, near_name, far_host, std::to_string(far_port)}); }

Attendee Attendee::of(const Words& words, size_t at) {
  return {words[at], words[at + 1], words[at + 2], words[at + 3], to_number(words[at + 4])};
}

Words Introduction::to_words() const {
  Words words = {build, std::to_string(rank), std::to_string(size)};
  who.put(words);
  return words;
}

std::optional<Introduction> Introduction::of(const Words& words) {
  if (words.size() != kWords) return std::nullopt;
  return Introduction{words[0], to_number(words[1]), to_number(words[2]), Attendee::of(words, kWords - Attendee::kWords)};
}

Words Roster::to_words() const {
  Words words = {kRoster, session};
  for (const Attendee& one : all) one.put(words);
  return words;
}

std::optional<Roster> Roster::of(const Words& words, int size) {
  if (size < 1 || words.size() != kBefore + static_cast<size_t>(size) * Attendee::kWords || words[0] != kRoster) return std::nullopt;
  Roster roster{words[1], {}};
  for (size_t at = kBefore; at < words.size(); at += Attendee::kWords) {
    roster.all.push_back(Attendee::of(words, at));
    if (roster.all.back().far_port < 0 || roster.all.back().far_port > 65535) return std::nullopt;
  }
  return roster;
}

}  // namespace spillway::parallel

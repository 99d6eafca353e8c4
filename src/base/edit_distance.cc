#include "base/edit_distance.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace spillway {
namespace {

constexpr size_t kMostWords = 4;        // a message shows at most this many words
constexpr size_t kShortestPrefix = 3;   // a shorter word begins too many others
constexpr size_t kLettersOfAnEdit = 3;  // one edit is allowed for so many letters of the longer word

// Returns the word in lower case, without dashes and underscores.
std::string plain(std::string_view word) {
  std::string letters;
  for (const unsigned char c : word) {
    if (c != '-' && c != '_') letters += static_cast<char>(std::tolower(c));
  }
  return letters;
}

int most_edits(std::string_view a, std::string_view b) {
  const size_t longer = std::max(a.size(), b.size()), shorter = std::min(a.size(), b.size());
  if (longer <= 1) return 0;
  // Words of different lengths get one more edit, because their first edits only make the lengths equal.
  const size_t letters = longer - shorter <= 1 ? longer : longer + 2;
  return static_cast<int>(std::max<size_t>(letters / kLettersOfAnEdit, 1));
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

std::vector<std::string> nearest_words(std::string_view word, const std::vector<std::string>& known) {
  const std::string wanted = plain(word);
  std::vector<std::string> longer, nearest;
  int least = static_cast<int>(wanted.size()) + 1;
  for (const std::string& candidate : known) {
    const std::string letters = plain(candidate);
    if (letters == wanted) return {candidate};
    if (wanted.size() >= kShortestPrefix && letters.starts_with(wanted)) longer.push_back(candidate);
    const int distance = edit_distance(wanted, letters);
    if (distance > least || distance > most_edits(wanted, letters)) continue;
    if (distance < least) nearest.clear();
    least = distance;
    nearest.push_back(candidate);
  }
  std::vector<std::string>& found = longer.empty() ? nearest : longer;
  found.resize(std::min(found.size(), kMostWords));
  return found;
}

std::string either_of(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

}  // namespace spillway

#include "data/tokenizer/stages/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/support_files.h"

namespace spillway::data::regex_test {
namespace {

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  const Regex regex(pattern, "[test]");
  std::vector<std::string> found;
  Regex::Walk walk(regex, text);
  while (walk.next()) found.push_back(text.substr(walk.begin(), walk.end() - walk.begin()));
  return found;
}

using testing::ElementsAre;
using testing::IsEmpty;

// Patterns have the meaning that Oniguruma gives them. Each pattern of this test means something else in PCRE2's own syntax.
TEST(RegexSyntax, WhatOnigurumaMeans) {
  EXPECT_THAT(matches(R"(\s+)", "a\u180eb\u0085c\u3000"), ElementsAre("\u0085", "\u3000")) << "U+180E is no space";
  EXPECT_THAT(matches(R"([^\S\n]+)", "a \n\u180e\tb"), ElementsAre(" ", "\t"));
  EXPECT_THAT(matches(R"(\w+)", "e\u0301\u203f_² Ⅷ"), ElementsAre("e\u0301\u203f_²", "Ⅷ")) << "marks, connectors, superscripts of Latin-1";
  EXPECT_THAT(matches(R"([\w]+)", "a²b"), ElementsAre("a", "b"));
  EXPECT_THAT(matches(R"(\h+)", "xfF0 g"), ElementsAre("fF0")) << "hexadecimal digits, not horizontal space";
  EXPECT_THAT(matches(R"(\p{N}{2}+)", "12345"), ElementsAre("1234")) << "repeats of two, not a possessive two";
  EXPECT_THAT(matches(R"((?m:a.b))", "a\nb"), ElementsAre("a\nb"));
  EXPECT_THAT(matches(R"(^.)", "ab\ncd"), ElementsAre("a", "c"));
  EXPECT_THAT(matches(R"(a{,2}b)", "aaab"), ElementsAre("aab"));
  EXPECT_THAT(matches(R"(\bb)", "e\u0301b b"), ElementsAre("b"));
  EXPECT_THAT(matches(R"(\u00e9)", "é"), ElementsAre("é"));
}

TEST(RegexSyntax, ClassesWithinClasses) {
  EXPECT_THAT(matches(R"( ?[^(\s|[.,!?])]+)", "one, two(three) 4|5"), ElementsAre("one", " two", "three", " 4", "5"));
  EXPECT_THAT(matches("[a[bc]d]+", "abcd]"), ElementsAre("abcd"));
  EXPECT_THAT(matches("[]a]+", "a]b"), ElementsAre("a]"));
}

TEST(RegexSyntax, PossessiveRepeatsStay) {
  EXPECT_THAT(matches(R"(a++a)", "aaa"), IsEmpty());
  EXPECT_THAT(matches(R"(a?+b)", "ab"), ElementsAre("ab"));
}

TEST(RegexWalk, EmptyMatches) {
  EXPECT_THAT(matches("x*", "axxb"), ElementsAre("", "xx", ""));
  EXPECT_THAT(matches("x*", ""), ElementsAre(""));
  EXPECT_THAT(matches("(?=é)", "éé"), ElementsAre("", ""));
}

// A match is first searched within a window of the next 128 bytes. The window's end must not count as the end of the text.
TEST(RegexWalk, TheEndOfAWindowIsNotTheEndOfTheText) {
  const std::string lines(300, '\n'), letters(300, 'a');
  EXPECT_THAT(matches("\\n(?!^)", lines), ElementsAre("\n")) << "no line begins behind the last newline";
  EXPECT_THAT(matches("a(?!a)", letters), ElementsAre("a"));
  EXPECT_THAT(matches("a$", letters), ElementsAre("a"));
  EXPECT_THAT(matches("a\\z", letters), ElementsAre("a"));
  EXPECT_THAT(matches("a+", letters + "b" + letters), ElementsAre(letters, letters));
  EXPECT_THAT(matches("\\Ga", letters + "b" + letters), testing::SizeIs(300));
  EXPECT_THAT(matches("\\X", "e" + letters.substr(0, 126) + "\u0301\u0301"), testing::SizeIs(127)) << "the window ends within a character";
  EXPECT_THAT(matches("b", letters + "b" + letters + "b"), ElementsAre("b", "b"));
}

TEST(RegexSyntax, EscapesThatAreRepeated) {
  EXPECT_THAT(matches(R"(\x61+)", "baaab"), ElementsAre("aaa"));
  EXPECT_THAT(matches(R"(\x{61}{2}+)", "aaaaab"), ElementsAre("aaaa"));
  EXPECT_THAT(matches(R"((b)\1+)", "abbbbc"), ElementsAre("bbbb"));
  EXPECT_THAT(matches(R"((?<n>b)\k<n>*a)", "bbba"), ElementsAre("bbba"));
  EXPECT_THAT(matches(R"((?i)A+)", "aAb"), ElementsAre("aA"));
}

TEST(RegexSyntax, WhatCannotBeSaid) {
  for (const char* pattern : {"[a[^b]]", "[[:alpha:]]", "[a&&b]", "(?~a)", "(*FAIL)", R"(\p)", R"(\pL)", "(", "[", R"(\)", R"([\W])",
                              "(?R)", "(?1)", R"(\Qa\E)", R"(\C)", R"(\u12)", "(?x)a", R"(\p{No such})", R"(\p{L)"}) {
    EXPECT_THAT(test::error_of(ErrorCode::data, [&] { Regex(pattern, "[test]"); }),
                testing::StartsWith("[test]: expected a regular expression"))
        << pattern;
  }
}

}  // namespace
}  // namespace spillway::data::regex_test

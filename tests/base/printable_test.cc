#include "base/printable.h"

#include <gtest/gtest.h>

namespace spillway::printable_test {
namespace {

TEST(Printable, TextPrintsAsItself) {
  const std::string text = "a line,\tand \"another\"\nnaïve, 日本語, 🦀, \u0627\u0644";
  EXPECT_EQ(for_terminal(text), text);
  EXPECT_EQ(in_one_line("日本語"), "日本語");
  EXPECT_EQ(for_terminal(""), "");
}

TEST(Printable, WhatATerminalObeysIsEscaped) {
  EXPECT_EQ(for_terminal("\x1b]0;title\x07"), "\\x1b]0;title\\x07");
  EXPECT_EQ(for_terminal("a\rb\x7f"), "a\\x0db\\u007f");
  EXPECT_EQ(for_terminal("\u009b2J"), "\\u009b2J") << "the control sequence introducer of ISO 6429 in one character";
  EXPECT_EQ(for_terminal("\x9b"), "\\x9b") << "and in one byte";
  EXPECT_EQ(for_terminal(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(in_one_line("a\nwhole: yes\t"), "a\\x0awhole: yes\\x09");
}

TEST(Printable, BytesThatAreNoUtf8AreEscaped) {
  for (const char* bytes : {"\xff", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\xf0\x9f\xa6"}) {
    const std::string out = for_terminal(bytes);
    EXPECT_EQ(out.size(), 4 * std::string(bytes).size()) << out;
    EXPECT_EQ(out.substr(0, 2), "\\x");
  }
}

}  // namespace
}  // namespace spillway::printable_test

#include "data/template/values/markup.h"

#include <algorithm>
#include <array>

#include "data/template/values/print_value.h"

namespace spillway::data::chat {
namespace {

const char* reference_of(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '\'':
      return "&#39;";
    case '"':
      return "&#34;";
    default:
      return nullptr;
  }
}

String escape_html(std::string_view text) {
  String out;
  for (const char c : text) {
    if (const char* reference = reference_of(c)) {
      out += reference;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

Value make_markup(String text) { return Markup{make_metered<String>(std::move(text))}; }

Value make_text_like(const Value& model, String text) { return model.is_markup() ? make_markup(std::move(text)) : Value(std::move(text)); }

Value escape(Run& run, const Value& value) {
  if (value.is_markup()) return value;
  const String text = to_text(run, value);
  run.spend_letters(text.size());
  return make_markup(escape_html(text));
}

void escape_arguments(Run& run, const std::string& method, Arguments& arguments) {
  Values& plain = arguments.plain;
  const bool pads = method == "ljust" || method == "rjust" || method == "center";
  if ((pads || method == "replace") && plain.size() > 1) plain[1] = escape(run, plain[1]);
  if (method != "join" || plain.empty()) return;
  Values items = items_of(run, plain[0])->items;
  for (Value& item : items) item = escape(run, item);
  plain[0] = make_list(run, std::move(items));
}

Value marked(Run& run, const std::string& method, const Value& outcome) {
  constexpr std::array<std::string_view, 3> kLists = {"rsplit", "split", "splitlines"};
  constexpr std::array<std::string_view, 2> kTuples = {"partition", "rpartition"};
  if (outcome.text()) return make_markup(*outcome.text());
  const bool list = std::ranges::find(kLists, method) != kLists.end(), tuple = std::ranges::find(kTuples, method) != kTuples.end();
  if (!list && !tuple) return outcome;
  Values items = outcome.sequence()->items;
  for (Value& item : items) item = make_markup(*item.text());
  return make_sequence(run, list ? Form::list : Form::tuple, std::move(items));
}

}  // namespace spillway::data::chat

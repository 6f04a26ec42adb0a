// Whether a text is well-formed XML, as far as our pictures use it: one root, elements closed in order,
// attributes quoted and each once, known entities, no stray markup, no control characters.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace troika {

/// "" or what is wrong.
inline std::string xml_error(std::string_view text) {
  const auto bad_text = [](std::string_view piece) {
    for (size_t at = 0; at < piece.size(); ++at) {
      const auto c = static_cast<unsigned char>(piece[at]);
      if (c < 0x20 && c != '\n' && c != '\t') return true;
      if (c == '<' || c == '>') return true;
      if (c != '&') continue;
      const std::string_view rest = piece.substr(at);
      if (rest.substr(0, 4) != "&lt;" && rest.substr(0, 4) != "&gt;" && rest.substr(0, 5) != "&amp;")
        return true;
    }
    return false;
  };
  std::vector<std::string> open;
  bool had_root = false;
  while (!text.empty()) {
    const size_t less = text.find('<');
    const std::string_view before = text.substr(0, less);
    if (bad_text(before)) return "bad text: " + std::string(before);
    if (open.empty() && before.find_first_not_of(" \n") != std::string_view::npos)
      return "text outside the root";
    if (less == std::string_view::npos) break;
    const size_t greater = text.find('>', less);
    if (greater == std::string_view::npos) return "an element without its end";
    std::string_view tag = text.substr(less + 1, greater - less - 1);
    text.remove_prefix(greater + 1);
    if (!tag.empty() && tag.front() == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return "closed out of order: " + std::string(tag);
      open.pop_back();
      continue;
    }
    const bool closed = !tag.empty() && tag.back() == '/';
    if (closed) tag.remove_suffix(1);
    const std::string name(tag.substr(0, tag.find(' ')));
    if (name.empty()) return "an element without a name";
    if (open.empty() && had_root) return "a second root: " + name;
    had_root = true;
    tag.remove_prefix(name.size());
    std::set<std::string> attributes;
    while (!tag.empty()) {
      const size_t quote = tag.find("=\""), end = tag.find('"', quote + 2);
      if (tag.front() != ' ' || quote == std::string_view::npos || end == std::string_view::npos) {
        return "not an attribute: " + std::string(tag);
      }
      if (!attributes.emplace(tag.substr(1, quote - 1)).second) return "an attribute twice in " + name;
      if (bad_text(tag.substr(quote + 2, end - quote - 2))) return "bad value in " + name;
      tag.remove_prefix(end + 1);
    }
    if (!closed) open.push_back(name);
  }
  if (!open.empty()) return "not closed: " + open.back();
  return had_root ? "" : "nothing";
}

}  // namespace troika

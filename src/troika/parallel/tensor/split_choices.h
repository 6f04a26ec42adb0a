// SplitChoices: what a user says about how layers are split over tensor ranks. Threading: a value.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace troika {

/// A pattern of layer names, as a shell's (block*), and the name of a way, or "whole". The first one that
/// fits a layer counts.
using SplitChoices = std::vector<std::pair<std::string, std::string>>;

}  // namespace troika

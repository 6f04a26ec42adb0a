// How actions look, in all drawings. Kinds are told apart by lightness as well as by hue, so that a print
// without colour stays readable; of a lane's stages the later ones are darker. Pure; thread-safe.
#pragma once

#include <string>

#include "troika/schedule/action.h"

namespace troika {

/// "#7fb3e6". `chunk` of `chunks` stages of the lane.
std::string fill_of(Op op, int chunk = 0, int chunks = 1);

/// Black or white, whichever reads on fill_of().
const char* ink_on(const std::string& fill);

/// Number of a colour among a terminal's 256, for the background; black letters read on it.
int terminal_colour(Op op, bool later_chunk);

}  // namespace troika

-- What scripts find in the interpreter, and how it is kept from them.
--
-- Called once with the interpreter's own globals and the functions of the host. Everything that a script can reach is
-- behind an empty table with a metatable that reads from the real one and refuses writes. The functions that would see
-- through that, or that would see errors of the host as they are, are replaced.
local real, host = ...

local error, getmetatable, next, pcall, rawget, rawset = error, getmetatable, next, pcall, rawget, rawset
local select, setmetatable, tonumber, tostring, type = select, setmetatable, tonumber, tostring, type
local xpcall = xpcall
local collectgarbage, resume = collectgarbage, coroutine.resume
local plain = host.plain

local READONLY = "Attempt to modify a readonly table"
local behind = {}

local function refuse()
  error(READONLY, 2)
end

local function front(t)
  local proxy, meta = {}, { __index = t, __newindex = refuse }
  behind[proxy] = t
  return setmetatable(proxy, meta), meta
end

local sealed, sealed_meta = front({})
sealed_meta.__metatable = sealed

local function seal(t)
  local proxy, meta = front(t)
  meta.__metatable = sealed
  return proxy, meta
end

local function missing(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end

local function expect_table(t, name, has_value)
  if type(t) ~= "table" then
    local got = has_value and type(t) or "no value"
    error("bad argument #1 to '" .. name .. "' (table expected, got " .. got .. ")", 3)
  end
end

local globals = {}
for _, name in ipairs({
  "assert", "error", "gcinfo", "getmetatable", "ipairs", "rawequal", "select", "tonumber", "tostring", "type",
  "unpack", "_VERSION",
}) do
  globals[name] = real[name]
end

function globals.next(...)
  local t, key = ...
  expect_table(t, "next", select("#", ...) > 0)
  return next(behind[t] or t, key)
end

function globals.pairs(...)
  local t = ...
  expect_table(t, "pairs", select("#", ...) > 0)
  if behind[t] then
    return globals.next, t, nil
  end
  return next, t, nil
end

function globals.rawget(...)
  local t, key = ...
  expect_table(t, "rawget", select("#", ...) > 0)
  return rawget(behind[t] or t, key)
end

function globals.rawset(...)
  local t, key, value = ...
  expect_table(t, "rawset", select("#", ...) > 0)
  if behind[t] then
    error(READONLY, 0)
  end
  return rawset(t, key, value)
end

function globals.setmetatable(...)
  local t, meta = ...
  expect_table(t, "setmetatable", select("#", ...) > 0)
  if behind[t] then
    error(READONLY, 0)
  end
  if type(meta) ~= "table" and (meta ~= nil or select("#", ...) < 2) then
    error("bad argument #2 to 'setmetatable' (nil or table expected)", 2)
  end
  local old = getmetatable(t)
  if type(old) == "table" and rawget(old, "__metatable") ~= nil then
    error("cannot change a protected metatable", 2)
  end
  return setmetatable(t, meta)
end

-- Of the ways to steer the collector only those that the next script does not feel.
function globals.collectgarbage(what, argument)
  if what == nil or what == "collect" or what == "count" or what == "step" then
    return collectgarbage(what or "collect", argument)
  end
  if what == "stop" or what == "restart" or what == "setpause" or what == "setstepmul" then
    return 0
  end
  error("bad argument #1 to 'collectgarbage' (invalid option '" .. tostring(what) .. "')", 2)
end

-- An error as the script may see it; a run that has to stop goes on stopping.
local function seen(raised)
  if type(raised) == "userdata" then
    local value, stops = plain(raised)
    if stops then
      error(raised, 0)
    end
    return value
  end
  return raised
end

local function settle(ok, ...)
  if ok then
    return true, ...
  end
  local raised = seen((...))
  if type(raised) == "table" and type(raised.err) == "string" then
    return false, raised.err
  end
  return false, raised
end

function globals.pcall(...)
  if select("#", ...) == 0 then
    error("bad argument #1 to 'pcall' (value expected)", 2)
  end
  return settle(pcall(...))
end

local function pass(ok, ...)
  if ok then
    return true, ...
  end
  return false, seen((...))
end

function globals.xpcall(...)
  if select("#", ...) < 2 then
    error("bad argument #2 to 'xpcall' (value expected)", 2)
  end
  local f, handler = ...
  return pass(xpcall(f, function(raised)
    if type(raised) == "userdata" then
      local value, stops = plain(raised)
      if stops then
        return raised
      end
      raised = value
    end
    return handler(raised)
  end))
end


globals.load = host.load
globals.loadstring = host.loadstring

local libraries = { "bit", "cjson", "cmsgpack", "coroutine", "math", "redis", "string", "struct", "table" }
local tables = { redis = {}, bit = {}, cjson = {}, cmsgpack = {}, struct = {} }
for _, name in ipairs(libraries) do
  local t = tables[name] or {}
  for key, value in next, real[name] or {} do
    t[key] = value
  end
  tables[name] = t
  globals[name] = seal(t)
end

tables.coroutine.resume = function(co, ...)
  if type(co) ~= "thread" then
    error("bad argument #1 to 'resume' (coroutine expected)", 2)
  end
  return pass(resume(co, ...))
end

-- The only one that writes into an empty table without asking its metatable.
tables.table.insert = host.guarded(tables.table.insert, behind)

-- Methods of strings: the metatable is shown as a stand-in, too.
local strings = getmetatable("")
strings.__index = tables.string
strings.__metatable = seal({ __index = globals.string })

local env, env_meta = seal(globals)
globals._G = env
globals.__redis__err__handler = host.fault
setmetatable(globals, { __index = missing })

-- While a library is loaded it finds only this.
local loading = setmetatable({}, { __index = missing })
local loading_redis = {}
loading.redis = seal(setmetatable(loading_redis, { __index = missing }))

local fault = host.fault

return {
  env = env,
  globals = globals,
  redis = tables.redis,
  tables = tables,
  loading_redis = loading_redis,
  begin_load = function()
    env_meta.__index = loading
  end,
  end_load = function()
    env_meta.__index = globals
  end,
  run = function(f)
    return xpcall(f, fault)
  end,
}

{{- define "oddnode.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "oddnode.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "oddnode.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "oddnode.selectorLabels" -}}
app.kubernetes.io/name: {{ include "oddnode.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "oddnode.labels" -}}
{{ include "oddnode.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "oddnode.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "oddnode.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "oddnode.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* What probes and scrapes speak. */}}
{{- define "oddnode.scheme" -}}
{{- ternary "https" "http" (not (empty (dig "http" "tls_cert" "" (include "oddnode.config" . | fromYaml)))) -}}
{{- end -}}

{{/* Settings with what the chart knows better: address, store, files of secrets. */}}
{{- define "oddnode.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if dig "source" "bearer_token" "" $config -}}
{{- fail "config.source.bearer_token would lie in a ConfigMap: use secrets.bearerToken" -}}
{{- end -}}
{{- if dig "source" "basic_password" "" $config -}}
{{- fail "config.source.basic_password would lie in a ConfigMap: use secrets.basicPassword" -}}
{{- end -}}
{{- if dig "store" "url" "" $config -}}
{{- fail "config.store.url would lie in a ConfigMap: use secrets.storeUrl" -}}
{{- end -}}
{{- $source := default (dict) (get $config "source") -}}
{{- $dir := "/etc/oddnode/secrets" -}}
{{- with .Values.secrets.bearerToken -}}
{{- if .name -}}{{- $_ := set $source "bearer_token_file" (printf "%s/bearer/%s" $dir .key) -}}{{- end -}}
{{- end -}}
{{- with .Values.secrets.basicPassword -}}
{{- if .name -}}{{- $_ := set $source "basic_password_file" (printf "%s/basic/%s" $dir .key) -}}{{- end -}}
{{- end -}}
{{- with .Values.secrets.tls -}}
{{- if .name -}}
{{- if .caKey -}}{{- $_ := set $source "ca_file" (printf "%s/tls/%s" $dir .caKey) -}}{{- end -}}
{{- if .certKey -}}{{- $_ := set $source "cert_file" (printf "%s/tls/%s" $dir .certKey) -}}{{- end -}}
{{- if .keyKey -}}{{- $_ := set $source "key_file" (printf "%s/tls/%s" $dir .keyKey) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $_ := set $config "source" $source -}}
{{- with .Values.secrets.apiTokens -}}
{{- if .name -}}
{{- $auth := merge (dict "tokens_file" (printf "%s/api/%s" $dir .key)) (default (dict) (get $config "auth")) -}}
{{- $_ := set $config "auth" $auth -}}
{{- end -}}
{{- end -}}
{{- $http := default (dict) (get $config "http") -}}
{{- with .Values.secrets.serverTls -}}
{{- if .name -}}
{{- $_ := set $http "tls_cert" (printf "%s/server/%s" $dir .certKey) -}}
{{- $_ := set $http "tls_key" (printf "%s/server/%s" $dir .keyKey) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $config "http" (merge (dict "host" "0.0.0.0" "port" 8080) $http) -}}
{{- $_ := set $config "store" (merge (dict "path" "/data/oddnode.db") (default (dict) (get $config "store"))) -}}
{{- toYaml $config -}}
{{- end -}}

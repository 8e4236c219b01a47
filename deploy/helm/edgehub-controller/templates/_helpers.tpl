{{/* What pods are selected by: never changes from one version to the next. */}}
{{- define "edgehub.selector" -}}
app.kubernetes.io/name: edgehub-controller
app.kubernetes.io/part-of: edgehub
{{- end }}

{{- define "edgehub.labels" -}}
{{ include "edgehub.selector" . }}
{{ include "edgehub.chartLabels" . }}
{{- end }}

{{- define "edgehub.chartLabels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "edgehub.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "edgehub.leaseNamespace" -}}
{{ .Values.leaderElection.namespace | default .Release.Namespace }}
{{- end }}
